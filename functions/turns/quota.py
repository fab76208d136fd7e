"""One owner's limits as they are kept: a document that every start of theirs reads and writes.

It is written in the commit that creates the turn, on the precondition that it is unchanged since it
was read: so the limits are exact (O1), and the end of a turn writes nothing. Callers without a user
have no such document, and no limits of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from functions import firestore
from functions.errors import NewerSchema, TooManyRunningTurns, TooManyTurns
from functions.settings import Settings
from functions.turns import limits, record
from functions.turns.limits import MINUTE, Granted, Limits, Look, Refused, Tally

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentReference, DocumentSnapshot, WriteBatch

SCHEMA = 1


def reference(owner: str) -> DocumentReference:
    """The owner's document."""
    key = hashlib.sha256(owner.encode()).hexdigest()[:40]
    return firestore.client().collection(firestore.OWNERS).document(key)


def count(
    owner: str, turn_key: str, snapshot: DocumentSnapshot[Any], settings: Settings
) -> Callable[[WriteBatch], None]:
    """Stages the count of one more turn, which fails when the document changed since `snapshot`.

    Raises TooManyTurns, TooManyRunningTurns, StorageUnavailable, NewerSchema.
    """
    fields = snapshot.to_dict() or {}
    if fields.get("schema", 0) > SCHEMA:
        raise NewerSchema("the owner's limits were written by a newer version of this service")
    tally = Tally(fields.get("starts", {}), frozenset(fields.get("running", ())))
    most = Limits(settings.max_running_turns, settings.max_turns_per_minute)
    decision = limits.decide(tally, most, snapshot.read_time)
    if isinstance(decision, Look):
        owned = record.owned(decision.turns)
        decision = limits.decide(tally, most, snapshot.read_time, owned)
    if isinstance(decision, Granted):
        return _writes(owner, turn_key, snapshot, decision.tally, settings)
    assert isinstance(decision, Refused)
    refuse = TooManyTurns if decision.of_the_minute else TooManyRunningTurns
    raise refuse(decision.retry_after_seconds)


def forget(owner: str, *, until: float) -> bool:
    """Delete what is counted of an owner whose turns are deleted; whether that is done.

    Starts of the last minute go on to count for another minute, without saying whose they are:
    else whoever deletes could start as many turns as they like. Raises StorageUnavailable.
    """
    document = reference(owner)

    def rest() -> Callable[[WriteBatch], None] | None:
        snapshot = firestore.get_all([document])[document.id]
        fields = snapshot.to_dict()
        if fields is None or not fields[firestore.OWNER]:
            return None
        unchanged = firestore.client().write_option(last_update_time=snapshot.update_time)
        if all(snapshot.read_time - at >= MINUTE for at in fields["starts"].values()):
            return lambda batch: batch.delete(document, option=unchanged)
        kept = {
            firestore.OWNER: "",
            "running": [],
            firestore.EXPIRE_AT: snapshot.read_time + MINUTE,
        }
        return lambda batch: batch.update(document, kept, option=unchanged)

    return firestore.converge(rest, until=until)


def _writes(
    owner: str,
    turn_key: str,
    snapshot: DocumentSnapshot[Any],
    tally: Tally,
    settings: Settings,
) -> Callable[[WriteBatch], None]:
    fields = new_fields(owner, turn_key, tally)
    # No turn of it is there any more by then.
    fields[firestore.EXPIRE_AT] = snapshot.read_time + timedelta(hours=settings.retention_hours)
    if not snapshot.exists:
        return lambda batch: batch.create(snapshot.reference, fields)
    unchanged = firestore.client().write_option(last_update_time=snapshot.update_time)
    return lambda batch: batch.update(snapshot.reference, fields, option=unchanged)


def new_fields(owner: str, turn_key: str, tally: Tally) -> dict[str, Any]:
    """The document with one more turn, all but its `expireAt`."""
    from google.cloud.firestore import SERVER_TIMESTAMP

    return {
        "schema": SCHEMA,
        firestore.OWNER: owner,
        "starts": {**tally.starts, turn_key: SERVER_TIMESTAMP},
        "running": sorted({*tally.running, turn_key}),
    }
