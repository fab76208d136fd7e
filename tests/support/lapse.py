"""Leases that are over at once, for tests whose owner is dead or never was.

Such a test gives its owners long leases, which no busy machine loses, and waits for none of them.
"""

from __future__ import annotations

from google.cloud.firestore import FieldFilter

from functions import firestore
from functions.turns import record
from functions.turns.record import Record
from tests.support.patience import PATIENCE_SECONDS, wait_until


def load(key: str) -> Record:
    """The turn as it is stored now."""
    turn = record.load(key, within_seconds=PATIENCE_SECONDS)
    assert turn is not None
    return turn


def lapse(key: str) -> Record:
    """The turn, once anybody may take it over: its margin still passes. Nobody may renew it.

    One that has ended meanwhile, before its owner was lost, is given as it is.
    """
    record.reference(key).update({"lease.seconds": 0})
    wait_until(lambda: (turn := load(key)).lapsed or turn.finished)
    return load(key)


def lapse_turn(turn_id: str) -> str:
    """As `lapse`, by the id that its client chose; its key."""
    turns = firestore.client().collection(firestore.TURNS)
    (found,) = turns.where(filter=FieldFilter("turnId", "==", turn_id)).stream()
    return lapse(found.id).key
