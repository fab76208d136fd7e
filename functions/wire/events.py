"""The closed set of events a turn consists of (docs/PROTOCOL.md, "Events").

An event means the same on every wire; `sse` is one encoder over these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

DoneReason = Literal["stop", "cancelled", "length"]
ToolStatus = Literal["ok", "error", "denied", "expired", "timeout", "in_doubt"]


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A tool was called; a second one for the same step updates the first."""

    step: int
    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """A tool's one recorded outcome."""

    step: int
    tool: str
    status: ToolStatus
    result: Any


@dataclass(frozen=True, slots=True)
class ToolPending:
    """The turn waits for a person to decide a step. `expires_at` is RFC 3339, UTC."""

    step: int
    tool: str
    args: Mapping[str, Any]
    expires_at: str


@dataclass(frozen=True, slots=True)
class Rewind:
    """The text after event `to` is void: cut to `length` UTF-16 code units."""

    to: int
    length: int


@dataclass(frozen=True, slots=True)
class Done:
    """Terminal: the turn ended as it should."""

    reason: DoneReason
    usage: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Error:
    """Terminal: the turn failed. `correlation_id` finds the server's log lines."""

    code: str
    message: str
    correlation_id: str


Event = Token | ToolStart | ToolEnd | ToolPending | Rewind | Done | Error

TERMINAL_TYPES = frozenset({"done", "error"})


def type_and_data(event: Event) -> tuple[str, Any]:
    """The event's wire type and the JSON value of its data."""
    match event:
        case Token(text):
            return "token", text
        case ToolStart(step, tool, args):
            return "tool_start", {"step": step, "tool": tool, "args": dict(args)}
        case ToolEnd(step, tool, status, result):
            return "tool_end", {"step": step, "tool": tool, "status": status, "result": result}
        case ToolPending(step, tool, args, expires_at):
            data = {"step": step, "tool": tool, "args": dict(args), "expiresAt": expires_at}
            return "tool_pending", data
        case Rewind(to, length):
            return "rewind", {"to": to, "length": length}
        case Done(reason, None):
            return "done", {"reason": reason}
        case Done(reason, usage):
            return "done", {"reason": reason, "usage": dict(usage or {})}
        case Error(code, message, correlation_id):
            return "error", {"code": code, "message": message, "correlationId": correlation_id}


def is_terminal(event: Event) -> bool:
    """Whether a turn ends with this event; every turn has exactly one such event."""
    return isinstance(event, (Done, Error))
