"""Finishing a turn that nobody is connected to: what a look at it comes to.

F2: a look changes nothing of a turn that is over, owned, or waits for a person; the next look is
scheduled before this one is answered. F3: a turn whose lease lapsed, or whose approval expired, is
taken over by the rules of any takeover (T1), as often as it takes: each owner counts towards
`MAX_ATTEMPTS`, so a turn that makes no progress ends with an error.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass

from functions import firestore, logs
from functions.settings import Settings
from functions.turns import record
from functions.turns.owners import Owners
from functions.turns.record import Record

RELEASED_SECONDS = 1.0
"""A turn whose lease was given back is looked at again so soon: the margin is over by then."""


class Do(enum.Enum):
    """What a look comes to."""

    NOTHING = "nothing"
    """The turn is over, or not there any more."""
    LOOK_AGAIN = "look again"
    TAKE_OVER = "take over"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, and in how many seconds if that is to look again."""

    do: Do
    seconds: float = 0


def judge(turn: Record | None, look_seconds: float) -> Verdict:
    """What to do about a turn as it was read."""
    if turn is None or turn.expired or turn.finished:
        return Verdict(Do.NOTHING)
    if turn.lapsed:
        return Verdict(Do.TAKE_OVER)
    if turn.waiting_until is not None:
        return Verdict(Do.LOOK_AGAIN, (turn.waiting_until - turn.read_at).total_seconds() + 1)
    if turn.holder.seconds == 0:  # released (L4): nobody runs it, and in a moment it may be taken
        return Verdict(Do.LOOK_AGAIN, RELEASED_SECONDS)
    return Verdict(Do.LOOK_AGAIN, look_seconds)


def finish(key: str, *, owners: Owners, settings: Settings, until: float) -> float | None:
    """Run the turn on for as long as nobody else does, up to `until` (monotonic).

    Holds the caller: outside of a request there is no CPU to run on. In how many seconds to look
    again; None when the turn needs nothing more. Raises AtCapacity, Draining, NotConfigured,
    StorageUnavailable, NewerSchema.
    """
    logs.bind(turn=key)
    pauses = firestore.backoff()
    while True:
        turn = record.load(key)
        if turn is not None:
            logs.bind(run=turn.run_id)
        verdict = judge(turn, settings.look_seconds)
        if turn is None or verdict.do is Do.NOTHING:
            return None
        if verdict.do is Do.LOOK_AGAIN:
            return verdict.seconds
        if time.monotonic() >= until:
            return settings.lease_seconds
        owners.finish(turn, until=until)
        time.sleep(next(pauses))
