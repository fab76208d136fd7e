"""The live feed: what an owner has shown, for readers in its own process.

W4: committed frames are kept up to `FEED_BYTES`; a reader further behind reads the journal instead.
What is not committed yet is in no journal, and so is always kept; the writer bounds it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

FEED_BYTES = 256 * 1024
"""Committed frames kept for readers in this process."""
READ_BYTES = 64 * 1024
"""The most one read gives: what a slow socket may hold up at a time."""


class State(enum.Enum):
    """How a read ended."""

    OPEN = "open"
    BEHIND = "behind"
    """The reader is further behind than what is kept: read the journal."""
    ENDED = "ended"
    """The owner is done with the turn and everything was read: it ended, waits for a person, or was
    released."""
    LOST = "lost"
    """The lease is lost: follow whoever owns the turn now."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader gets: whole frames (none if nothing came in time) and its new cursor."""

    frames: bytes
    cursor: int
    state: State


class Feed:
    """Frames with dense ids. Not thread safe: the writer's lock guards it."""

    def __init__(self, last: int, frames: list[bytes]) -> None:
        """`frames` are the first ones; the last of them has id `last`."""
        self._frames = frames
        self._bytes = sum(map(len, frames))
        self._base = last - len(frames)
        """The id before the first frame that is kept."""

    @property
    def last(self) -> int:
        """The id of the last frame shown."""
        return self._base + len(self._frames)

    @property
    def empty(self) -> bool:
        """Whether nothing is kept; before anything is committed, whether nothing was shown."""
        return not self._frames

    def show(self, frame: bytes) -> None:
        """Show the frame with the next id."""
        self._frames.append(frame)
        self._bytes += len(frame)

    def trim(self, confirmed: int) -> None:
        """Drop the oldest frames over the bound, as far as they are committed."""
        dropped = 0
        while self._bytes > FEED_BYTES and self._base + dropped < confirmed:
            self._bytes -= len(self._frames[dropped])
            dropped += 1
        del self._frames[:dropped]
        self._base += dropped

    def read(self, cursor: int) -> Read:
        """The frames above `cursor`, up to `READ_BYTES`; none when there are none yet."""
        if cursor < self._base:
            return Read(b"", cursor, State.BEHIND)
        start = cursor - self._base
        end, size = start, 0
        while end < len(self._frames) and size < READ_BYTES:
            size += len(self._frames[end])
            end += 1
        frames = b"".join(self._frames[start:end])
        return Read(frames, self._base + end if frames else cursor, State.OPEN)
