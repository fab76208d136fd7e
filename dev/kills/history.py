"""The messages that a turn leaves in its session, as they compare between turns. Pure."""

from __future__ import annotations

import json
from typing import Any

_OWN = {"timestamp", "run_id", "conversation_id"}
"""A turn's own: they differ between turns, and never between the runs of one."""


def comparable(messages: list[Any], path: str) -> list[Any]:
    """The messages without what is a turn's own; call ids by their order of appearance.

    An outcome in doubt compares as no outcome: the container died at the wrong moment.
    """
    names: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        if not isinstance(value, dict):
            return value
        kept = {key: plain(item) for key, item in value.items() if key not in _OWN}
        if "tool_call_id" in kept:
            kept["tool_call_id"] = names.setdefault(kept["tool_call_id"], f"call-{len(names) + 1}")
        if kept.get("part_kind") == "tool-return":
            kept["content"] = kept["outcome"] = kept["content_file_digests"] = None
        return kept

    text = json.dumps(plain(messages)).replace(path, "the file").replace("in_doubt", "ok")
    compared: list[Any] = json.loads(text)
    for message in compared:
        if message["kind"] == "response":
            message.pop("usage")  # counted by the words of the outcomes
    return compared


def times(messages: list[Any]) -> list[str]:
    """When each message was made: those of one turn are in order, whoever ran it."""
    return [message["timestamp"] for message in messages]
