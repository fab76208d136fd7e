"""Deciding a step that waits for a person.

D1: the decision, status `running`, `epoch + 1` and the epoch chunk are one commit, on the
precondition that the turn's document is unchanged since it was read as waiting. So of any number
of deciders one decides, and owns the turn from there; the others see that one outcome.
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
    and as `admission.resume` does (NewerSchema, …).
    """
    key = record.turn_key(owner, turn_id)
    logs.bind(turn=key)
    turn = record.load(key)  # before its steps: a newer schema may have changed those
    if turn is None:
        raise UnknownTurn("there is no such turn")
    if turn.gone:
        raise Gone("the turn is past its retention, or was deleted")
    until = time.monotonic() + firestore.READ_SECONDS
    pauses = firestore.backoff()
    while _waits(key, position):
        if _decide(key, position, decision, owners, settings):
            break
        if time.monotonic() >= until:
            raise TurnBusy("another step of the turn is running; decide this one after it")
        time.sleep(next(pauses))
    return admission.resume(owner, turn_id, cursor, owners=owners, settings=settings)


def _waits(key: str, position: int) -> bool:
    """Whether the step can still be decided. Raises UnknownStep, StorageUnavailable."""
    step = steps.load(key, position)
    if step is None:
        raise UnknownStep(f"the turn has no step {position}")
    return step.status == steps.WAITING and step.decision is None


def _decide(key: str, position: int, decision: str, owners: Owners, settings: Settings) -> bool:
    """Try to decide and to own the turn; False when it changed meanwhile: look again."""
    turn = record.load(key)
    if turn is None:
        raise UnknownTurn("there is no such turn")
    if turn.expired or turn.finished or turn.lapsed:
        return True  # nothing to decide any more: who attaches is told, or records that it expired
    if turn.status != record.WAITING:
        return False  # decided by somebody else just now, or another step of the turn is running
    owners.require_room()

    def also(batch: WriteBatch) -> None:
        batch.update(steps.document(key, position), {"decision": decision})

    taken = takeover.take_over(turn, settings=settings, also=also)
    if taken is None:
        return False
    logs.info("step decided", step=position, decision=decision)
    owners.own(taken)
    return True
