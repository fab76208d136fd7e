"""Turns and steps that may need somebody, one a line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from functions.turns import record
from functions.turns.record import Record
from operate import timeline
from operate.reading import Recorded

STUCK_SECONDS = 60.0
"""A turn without an owner is taken over when somebody asks for it; after so long nobody did."""


def turns(found: Iterable[Record]) -> Iterator[str]:
    """A line for each: its key, its epoch, how it stands, since when it is there."""
    none = True
    for turn in found:
        none = False
        how = f"{timeline.standing(turn)}; begun {timeline.day(turn.created_at)}"
        yield f"{turn.key}  epoch {turn.holder.epoch:<3} {how}"
    if none:
        yield "none"


def stuck(found: Iterable[Record]) -> list[Record]:
    """Those that nobody has finished though they could be: without an owner for a minute, or with
    an approval that has expired. Past their retention nobody can.
    """
    return [turn for turn in found if not turn.expired and _stuck(turn)]


def _stuck(turn: Record) -> bool:
    if turn.status == record.WAITING:
        return turn.lapsed
    return turn.lapsed and -turn.lapses_in > STUCK_SECONDS


def in_doubt(found: Iterable[Recorded]) -> Iterator[str]:
    """A line for each step: where it is, what it called, what was noted."""
    none = True
    for one in found:
        none = False
        noted = "; ".join(f"{note['by']}: {note['text']}" for note in one.notes)
        yield (
            f"{one.key}  step {one.step.position:<4} {one.step.name}  "
            f"{timeline.day(one.written_at)}  {noted or 'no note'}"
        )
    if none:
        yield "none"
