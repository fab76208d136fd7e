"""How many turns one owner may start and have running: the rule, without I/O. Pure.

- O1: exact. Of any number of starts at once no more are let in than the limits allow.
- O2: a turn counts as running until it was looked at and found to have ended, to wait for a person,
  or to have lost its owner. It is looked at only when the limit is reached.
- O3: times are the server's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

MINUTE = timedelta(seconds=60)
RUNNING_RETRY_SECONDS = 5
"""When a turn ends is not known: whoever has too many of them may ask again after so long."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most one owner may have."""

    running: int
    per_minute: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What is counted of one owner; turns by the keys of their documents."""

    starts: Mapping[str, datetime] = field(default_factory=dict)
    """When each turn of the last minute was started."""
    running: frozenset[str] = frozenset()
    """Turns that may be running."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The start may go ahead; `tally` is what is counted beside it."""

    tally: Tally


@dataclass(frozen=True, slots=True)
class Look:
    """Decide again once these turns were looked at."""

    turns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """Too many: of the last minute, or else running at once."""

    of_the_minute: bool
    retry_after_seconds: int


Decision = Granted | Look | Refused


def decide(
    tally: Tally, limits: Limits, now: datetime, still_running: Iterable[str] | None = None
) -> Decision:
    """What comes of one more start at `now`, the server's time.

    `still_running` are those of the tally's running turns that were looked at and do run; None
    when nobody looked yet.
    """
    starts = {turn: at for turn, at in tally.starts.items() if now - at < MINUTE}
    over = len(starts) - limits.per_minute
    if over >= 0:
        leaves_at = sorted(starts.values())[over] + MINUTE
        return Refused(True, max(1, math.ceil((leaves_at - now).total_seconds())))
    if len(tally.running) < limits.running:
        return Granted(Tally(starts, tally.running))
    if still_running is None:
        return Look(tally.running)
    running = tally.running & frozenset(still_running)
    if len(running) < limits.running:
        return Granted(Tally(starts, running))
    return Refused(False, RUNNING_RETRY_SECONDS)
