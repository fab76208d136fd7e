"""What a session remembers: one entry for each turn that ended, and what fits. Pure.

- H4: the history is bounded. The oldest whole turns are dropped first; a turn that alone is over
  the bound is kept as an empty entry that says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from functions.wire import values

SESSION_HISTORY_BYTES = 400 * 1024
"""The most JSON a session keeps; room for the longest prompt and answer that are kept by default,
and less than half of what Firestore takes in one document."""
ENTRY_BYTES = 256
"""Counted for an entry beside its messages: so many small ones are bounded, too."""
MESSAGE_DEPTH = 2 * values.MAX_DEPTH
"""A message may hold the deepest result of a tool."""
ANSWER_CHARS = 50_000
"""Of an answer that is kept by default, so much; as much as a prompt may have."""
CUT = " […]"
"""Ends an answer that was cut."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one turn left in its session."""

    key: str
    """The turn's document."""
    turn_id: str
    position: int
    """Which turn of the session it was, from 1."""
    messages: bytes
    """A JSON list, UTF-8."""
    dropped: bool = False
    """Whether it was too large to keep: then it has no messages."""

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        return len(self.messages) + ENTRY_BYTES

    def to_fields(self) -> dict[str, Any]:
        """As stored in the session's `history`, under the turn's key."""
        return {
            "turnId": self.turn_id,
            "position": self.position,
            "messages": self.messages,
            "dropped": self.dropped,
        }

    @classmethod
    def from_fields(cls, key: str, fields: Mapping[str, Any]) -> Entry:
        """Read a stored entry."""
        return cls(key, fields["turnId"], fields["position"], fields["messages"], fields["dropped"])


class Told:
    """The text of an owner, or the start of it: more than `ANSWER_CHARS` are not kept whole."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0

    @property
    def text(self) -> str:
        """What is kept."""
        return "".join(self._pieces)

    def add(self, words: str) -> None:
        """Text was told."""
        if self._chars <= ANSWER_CHARS:
            self._pieces.append(words)
            self._chars += len(words)

    def cut(self, length: int) -> None:
        """All but the first `length` UTF-16 units was withdrawn."""
        text = self.text.encode("utf-16-le")[: 2 * length].decode("utf-16-le")
        self._pieces, self._chars = [text], len(text)


def encode(messages: Sequence[Any]) -> bytes:
    """Messages as a JSON list in UTF-8.

    Raises ValueError or TypeError when they are no list, or hold what JSON or UTF-8 cannot carry.
    """
    if not isinstance(messages, list | tuple):
        raise TypeError(f"messages are a list, not {type(messages).__name__}")
    return values.to_json(messages, levels=MESSAGE_DEPTH, ensure_ascii=False).encode()


def exchange(prompt: str, answer: str) -> bytes:
    """What is remembered of a turn whose agent says nothing about it."""
    if len(answer) > ANSWER_CHARS:
        answer = answer[:ANSWER_CHARS] + CUT
    return encode([{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}])


def messages_of(entries: Iterable[Entry]) -> list[Any]:
    """The messages of all entries, oldest first; a fresh list each time."""
    return [message for entry in entries for message in json.loads(entry.messages)]


def fit(entries: Sequence[Entry], new: Entry) -> tuple[Entry, tuple[Entry, ...]]:
    """The new entry as it is kept, and the entries (oldest first) that are dropped for it (H4)."""
    if new.size > SESSION_HISTORY_BYTES:
        return Entry(new.key, new.turn_id, new.position, b"[]", dropped=True), ()
    size = new.size + sum(entry.size for entry in entries)
    out = 0
    while size > SESSION_HISTORY_BYTES:
        size -= entries[out].size
        out += 1
    return new, tuple(entries[:out])


def hash_of(entries: Iterable[Entry]) -> str:
    """Names exactly this history: what a turn's later owners compare (H3)."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(f"{entry.key} {len(entry.messages)} ".encode() + entry.messages)
    return digest.hexdigest()
