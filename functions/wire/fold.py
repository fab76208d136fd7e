"""What a client makes of a turn's events: the reference for every client, and for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from functions.wire.events import TERMINAL_TYPES
from functions.wire.sse import Frame


@dataclass(slots=True)
class Fold:
    """A turn as a client sees it. A saved `text` and `cursor` are enough to go on."""

    text: str = ""
    cursor: int = 0
    ended: Frame | None = None
    rewinds: int = 0

    def apply(self, frame: Frame) -> None:
        """Fold one frame in; an id not above the cursor is a repeat and is ignored."""
        if frame.id <= self.cursor:
            return
        self.cursor = frame.id
        if frame.type == "token":
            self.text += frame.data
        elif frame.type == "rewind":
            units = self.text.encode("utf-16-le")[: 2 * frame.data["length"]]
            self.text = units.decode("utf-16-le")
            self.rewinds += 1
        elif frame.type in TERMINAL_TYPES:
            self.ended = frame


def fold(frames: Iterable[Frame], start: Fold | None = None) -> Fold:
    """Fold `frames` into `start` (a fresh one by default) and return it."""
    state = start or Fold()
    for frame in frames:
        state.apply(frame)
    return state
