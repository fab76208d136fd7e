"""Pydantic AI's messages as JSON: for a session's history, and to tell a re-run's request. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

_SAME_IN_EVERY_RUN = ("part_kind", "content", "tool_name", "args", "outcome")
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_MAY_CHANGE = frozenset({"system-prompt", "instructions"})


def load(history: Sequence[Any]) -> list[ModelMessage]:
    """The messages of earlier turns, also of those that another agent of this package answered.

    What is neither is left out: a session outlives the agents that serve it.
    """
    loaded: list[ModelMessage] = []
    for item in history:
        match item:
            case {"role": "user", "content": str(text)}:
                loaded.append(ModelRequest([UserPromptPart(text, timestamp=_LONG_AGO)]))
            case {"role": "assistant", "content": str(text)}:
                loaded.append(ModelResponse([TextPart(text)], timestamp=_LONG_AGO))
            case _:
                with suppress(ValidationError):
                    loaded += ModelMessagesTypeAdapter.validate_python([item])
    return loaded


def dump(messages: Sequence[ModelMessage], started_at: datetime) -> list[Any]:
    """What a turn adds to its session: the same in every run of the turn.

    Responses carry the time at which they were recorded. A request is made anew by every run, and
    so is given the time of the response before it; the first one, that of the turn's start.
    """
    dumped: list[Any] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    at = started_at.isoformat()
    for number, message in enumerate(dumped):
        if message["kind"] == "response":
            at = message["timestamp"]
            continue
        message["timestamp"] = at
        for part in message["parts"]:
            if "timestamp" in part:
                part["timestamp"] = at
            if part["part_kind"] == "retry-prompt" and part.get("tool_name") is None:
                part["tool_call_id"] = f"retry-{number}"  # a random one, that no call has
    return dumped


def identity(messages: Sequence[ModelMessage]) -> list[Any]:
    """What of a conversation must come out the same when a turn is run again.

    Not the instructions, which new code may word anew: a recorded response stands as it is.
    """
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return [
        [
            {name: part[name] for name in _SAME_IN_EVERY_RUN if name in part}
            for part in message["parts"]
            if part["part_kind"] not in _MAY_CHANGE
        ]
        for message in dumped
    ]
