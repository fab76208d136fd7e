"""What an owner has said and not committed yet: numbered, and with the length of the turn's text.

W4: it is bounded, together with what a chunk takes of it. Not thread safe: the writer's lock
guards it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from functions.turns.history import Told
from functions.turns.journal import Chunk
from functions.turns.numbering import highest_showable
from functions.wire import sse, text
from functions.wire.events import Event, Rewind, Token

FLUSH_BYTES = 32 * 1024
"""A chunk this large is committed at once."""
PENDING_BYTES = 256 * 1024
"""With so much uncommitted the agent waits."""
CHUNK_BYTES = 900_000
"""The most frames in one chunk; Firestore takes 1 MiB a document."""


@dataclass(frozen=True, slots=True)
class Said:
    """One event with its id."""

    id: int
    frame: bytes
    length: int
    """UTF-16 length of the turn's text after this event."""
    shown: bool
    """Whether it is in the feed already, or has to wait for its commit (W1)."""


class Draft:
    """The events after the last committed one. `begins` is the chunk that the epoch begins with."""

    def __init__(self, begins: Chunk | None, *, window: int, keeps_text: bool) -> None:
        self._window = window
        self.confirmed = 0 if begins is None else begins.last
        """The id of the last event that is known to be committed."""
        self.confirmed_length = 0 if begins is None else begins.length
        """The length of the turn's text at that event."""
        self.next_id = self.confirmed + 1
        self.length = self.confirmed_length
        self._begins_length = self.length
        self._told = Told() if keeps_text else None
        self._said: list[Said] = []
        self._bytes = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self._said

    @property
    def due(self) -> bool:
        """Whether it is to be committed at once."""
        return self._bytes >= FLUSH_BYTES

    @property
    def has_room(self) -> bool:
        """Whether a token may be shown now: inside the window (N2), and within the bound."""
        inside_window = self.next_id <= highest_showable(self.confirmed, self._window)
        return inside_window and self._bytes < PENDING_BYTES

    @property
    def told(self) -> str:
        """The text of this epoch, or the start of it; empty where it is not kept."""
        return "" if self._told is None else self._told.text

    def add(self, event: Event, *, shown: bool) -> bytes:
        """Number an event and queue it for the journal; its frame."""
        frame = sse.encode(self.next_id, event)
        self._queue(event, frame, shown=shown)
        return frame

    def add_all(self, events: Sequence[Event]) -> None:
        """Add events that are shown after their commit: all of them, or none if one cannot be
        encoded. Raises ValueError or TypeError then.
        """
        frames = [sse.encode(self.next_id + n, event) for n, event in enumerate(events)]
        for event, frame in zip(events, frames, strict=True):
            self._queue(event, frame, shown=False)

    def _queue(self, event: Event, frame: bytes, *, shown: bool) -> None:
        if isinstance(event, Token):
            self.length += text.utf16_length(event.text)
            if self._told is not None:
                self._told.add(event.text)
        elif isinstance(event, Rewind):
            self.length = event.length
            if self._told is not None:
                self._told.cut(event.length - self._begins_length)
        self._said.append(Said(self.next_id, frame, self.length, shown))
        self._bytes += len(frame)
        self.next_id += 1

    def take(self) -> list[list[Said]]:
        """Take all of it, in parts of at most `CHUNK_BYTES`, each frame whole; at least one part,
        maybe empty.
        """
        said, self._said = self._said, []
        self._bytes = 0
        parts: list[list[Said]] = [[]]
        size = 0
        for item in said:
            if parts[-1] and size + len(item.frame) > CHUNK_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(item)
            size += len(item.frame)
        return parts

    def forget(self, last_shown: int) -> None:
        """Drop what was refused. Ids that were shown stay used; the others are given back, so
        that ids in the feed stay dense.
        """
        self._said.clear()
        self._bytes = 0
        self.length = self.confirmed_length
        self.next_id = last_shown + 1

    def confirm(self, part: list[Said]) -> None:
        """A part that was taken is committed."""
        if part:
            self.confirmed, self.confirmed_length = part[-1].id, part[-1].length
