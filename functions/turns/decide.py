"""Deciding a step that waits for a person.

D1: the decision, status `running`, `epoch + 1` and the epoch chunk are one commit, on the
precondition that the turn's document is unchanged since it was read as waiting, or as one that
nobody owns any more: another step's approval has expired, or its owner died. So of any number of
deciders one decides, and owns the turn from there; the others see that one outcome.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from functions import firestore, logs
from functions.errors import Gone, TurnBusy, UnknownStep, UnknownTurn
from functions.settings import Settings
from functions.turns import admission, record, steps, takeover
from functions.turns.admission import Admitted
from functions.turns.owners import Owners
from functions.turns.record import Record

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch


def decide(
    owner: str,
    turn_id: str,
    position: int,
    decision: str,
    cursor: int,
    *,
    owners: Owners,
    settings: Settings,
) -> Admitted:
    """Decide the step at `position` if it waits, run the turn on, and attach to it.

    A step that is decided, expired or finished is left as it is: the caller just attaches. Raises
    UnknownTurn, UnknownStep, Gone, TurnBusy while the step waits and the turn runs another one,
    and as `admission.resume` does (NewerSchema, …): a request that is refused decides nothing.
    """
    key = record.turn_key(owner, turn_id)
    logs.bind(turn=key)
    until = time.monotonic() + firestore.READ_SECONDS
    pauses = firestore.backoff()
    turn = _load(key)
    admission.read_from(turn, cursor)
    while _waits(turn, position) and not _decide(turn, position, decision, owners, settings):
        if time.monotonic() >= until:
            raise TurnBusy("another step of the turn is running; decide this one after it")
        time.sleep(next(pauses))
        turn = _load(key)
    return admission.resume(owner, turn_id, cursor, owners=owners, settings=settings)


def _load(key: str) -> Record:
    """The turn; to be read before its steps, which a newer schema may have changed."""
    turn = record.load(key)
    if turn is None:
        raise UnknownTurn("there is no such turn")
    if turn.gone:
        raise Gone("the turn is past its retention, or was deleted")
    return turn


def _waits(turn: Record, position: int) -> bool:
    """Whether the step can still be decided; it is read after `turn`, so that the precondition of
    a decision holds for it, too. Raises UnknownStep, StorageUnavailable.
    """
    step = steps.load(turn.key, position)
    if step is None:
        raise UnknownStep(f"the turn has no step {position}")
    undecided = step.status == steps.WAITING and step.decision is None
    in_time = step.decide_by is not None and turn.read_at < step.decide_by
    return undecided and in_time and not turn.finished


def _decide(turn: Record, position: int, decision: str, owners: Owners, settings: Settings) -> bool:
    """Try to decide and to own the turn; False when it changed meanwhile: look again."""
    if turn.status != record.WAITING and not turn.lapsed:
        return False  # decided by somebody else just now, or another step of the turn is running
    owners.require_room()
    owners.require_agent()

    def also(batch: WriteBatch) -> None:
        batch.update(steps.document(turn.key, position), {"decision": decision})

    taken = takeover.take_over(turn, settings=settings, also=also)
    if taken is None:
        return False
    logs.info("step decided", step=position, decision=decision)
    owners.own(taken)
    return True
