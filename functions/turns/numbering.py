"""How events are numbered, and what a cursor may be. Pure.

Ids only go up and never mean two things (N1). An owner may show a token before its commit is
known, but only up to `window` ids past the last confirmed one (N2); the next epoch starts above
all of these (N3).
"""

from __future__ import annotations

import re

WINDOW = 10_000
"""Ids an owner may show ahead of the journal; stored on the turn, so all its owners agree."""

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,15}")


def first_id_of_epoch(last_committed: int, window: int) -> int:
    """The first id of an epoch that takes over: above every id the last owner may have shown."""
    return last_committed + window + 1


def highest_showable(last_confirmed: int, window: int) -> int:
    """The highest id that may be shown while `last_confirmed` is the last one known committed."""
    return last_confirmed + window


def parse_cursor(text: str) -> int | None:
    """The cursor a `Last-Event-ID` names; 0 for none or empty; None if it is no cursor at all.

    Digits only, no sign, space or leading zero, below 2**53 (what a JavaScript client can hold).
    """
    if not text:
        return 0
    if not text.isascii() or not _DECIMAL.fullmatch(text):
        return None
    value = int(text)
    return value if value < 2**53 else None


def cursor_possible(cursor: int, last: int, window: int, *, finished: bool) -> bool:
    """Whether a client of this turn can stand at `cursor` when its journal ends at `last`.

    `last` must be read after the request arrived. Ids in a dead epoch's gap are possible.
    """
    return cursor <= (last if finished else highest_showable(last, window))


def continues(cursor: int, chunk_after: int) -> bool:
    """Whether a chunk that follows id `chunk_after` gives a reader at `cursor` all it missed.

    False: chunks between them are gone. Never silence: the reader must be told (J4).
    """
    return chunk_after <= cursor
