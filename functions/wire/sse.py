r"""The SSE form of an event, and back.

A frame is `id: N\nevent: TYPE\ndata: JSON\n\n`, all ASCII, its data one line: JSON is written
with every non-ASCII and control character escaped, so no text an agent or a tool produces can end
a line, forge a field or open a frame (HTML Standard, section 9.2 "Server-sent events").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from functions.wire.events import TERMINAL_TYPES, Event, Token, type_and_data
from functions.wire.values import whole

PING = b":keep-alive\n\n"
"""A comment: keeps proxies from cutting a silent socket. Never journaled, carries no id."""

_END = b"\n\n"
_FRAME = re.compile(rb"id: ([0-9]{1,16})\nevent: ([a-z_]+)\ndata: ([\x20-\x7e]+)\n\n")
_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Frame:
    """One decoded frame. `start` is where its bytes begin in what was decoded."""

    id: int
    type: str
    data: Any
    start: int


def encode(event_id: int, event: Event) -> bytes:
    """The frame of `event`. A token's text is Unicode already; in all else half a surrogate pair
    becomes U+FFFD.

    Raises ValueError or TypeError when its data is no JSON value (NaN, a set, bytes).
    """
    if isinstance(event, Token):  # the hot path: one per token
        return b"id: %d\nevent: token\ndata: %b\n\n" % (event_id, _dumps(event.text).encode())
    kind, data = type_and_data(event)
    text = whole(_dumps(data))
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event_id, kind.encode(), text.encode())


def decode(frames: bytes) -> Iterator[Frame]:
    """Read back frames that `encode` wrote. Raises ValueError on anything else."""
    position = 0
    while position < len(frames):
        match = _FRAME.match(frames, position)
        if match is None:
            raise ValueError(f"not a frame at byte {position}")
        yield Frame(int(match[1]), match[2].decode(), json.loads(match[3]), position)
        position = match.end()


def after(frames: bytes, cursor: int) -> bytes:
    """The frames whose id is above `cursor`: a suffix, for ids only go up."""
    position = 0
    while position < len(frames):
        match = _FRAME.match(frames, position)
        if match is None:
            raise ValueError(f"not a frame at byte {position}")
        if int(match[1]) > cursor:
            return frames[position:]
        position = match.end()
    return b""


def ends_turn(frames: bytes) -> bool:
    """Whether the last of these frames is the turn's terminal event."""
    return _last_type(frames) in TERMINAL_TYPES


def waits(frames: bytes) -> bool:
    """Whether the last of these frames asks a person for a decision."""
    return _last_type(frames) == "tool_pending"


def _last_type(frames: bytes) -> str:
    if not frames:
        return ""
    start = frames.rfind(_END, 0, len(frames) - len(_END))
    last = frames if start < 0 else frames[start + len(_END) :]
    match = _FRAME.match(last)
    return "" if match is None else match[2].decode()
