"""Deleting what an owner has: a turn, a session, or everything.

- P1: a turn that runs or waits is ended first (C1). Then its document becomes a tombstone, in one
  commit: from then on everything about the turn is `gone`, and its start is not run again.
- P2: the journal's chunks lose their content and keep their places: no late writer of any epoch can
  append (J2). TTL deletes them when the turn would have expired.
- P3: what the turn left in its session goes with it.
- P4: the work of one call is bounded. What is left, the same call again finishes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from functions import firestore, logs
from functions.errors import UnknownSession, UnknownTurn
from functions.turns import cancel, journal, quota, record, sessions, steps

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentReference, Query, WriteBatch

    Writes = Callable[[WriteBatch], None]

DELETE_SECONDS = 40.0
"""One call's work; the function has 60 s."""
BATCH_DOCUMENTS = 300
BATCH_TURNS = 50


@dataclass(frozen=True, slots=True)
class Deleted:
    """What one call deleted. `more`: its time was over before all of it was."""

    turns: int
    sessions: int
    more: bool


def delete_turn(owner: str, turn_id: str, *, seconds: float = DELETE_SECONDS) -> Deleted:
    """Delete a turn: its steps, its events, what it left in its session. Idempotent.

    Raises UnknownTurn, StorageUnavailable, NewerSchema.
    """
    key = record.turn_key(owner, turn_id)
    logs.bind(turn=key)
    if record.load(key) is None:
        raise UnknownTurn("there is no such turn")
    whole = _delete_turn(key, time.monotonic() + seconds)
    return Deleted(turns=int(whole), sessions=0, more=not whole)


def delete_session(owner: str, session_id: str, *, seconds: float = DELETE_SECONDS) -> Deleted:
    """Delete a session with its history. A turn of it that runs or waits is stopped first.

    Its turns stay until they expire, or are deleted. Raises UnknownSession, StorageUnavailable,
    NewerSchema.
    """
    if sessions.load(owner, session_id) is None:
        raise UnknownSession("there is no such session")
    whole = _delete_session(owner, session_id, time.monotonic() + seconds)
    return Deleted(turns=0, sessions=int(whole), more=not whole)


def delete_owner(owner: str, *, seconds: float = DELETE_SECONDS) -> Deleted:
    """Delete all turns and sessions of an owner, and what is counted of them. Idempotent.

    Raises StorageUnavailable, NewerSchema.
    """
    until = time.monotonic() + seconds
    turns = chats = 0
    while time.monotonic() < until:
        # Sessions first: a turn then need not be taken out of its own.
        found = sessions.page(owner)
        for session in found:
            chats += _delete_session(owner, session.session_id, until)
        keys = _turns_of(owner)
        for key in keys:
            turns += _delete_turn(key, until)
        if not found and not keys and quota.forget(owner, until=until):
            return Deleted(turns, chats, more=False)
    return Deleted(turns, chats, more=True)


def _delete_session(owner: str, session_id: str, until: float) -> bool:
    """Whether it is deleted in time."""

    def rest() -> Writes | None:
        session = sessions.load(owner, session_id)
        while session is not None and session.claim is not None and _end(session.claim.key):
            session = sessions.load(owner, session_id)  # released, or claimed by another turn
        if session is None:
            return None
        document = sessions.reference(session.key)
        unchanged = firestore.client().write_option(last_update_time=session.written_at)
        return lambda batch: batch.delete(document, option=unchanged)

    return firestore.converge(rest, until=until)


def _delete_turn(key: str, until: float) -> bool:
    """Whether all of it is deleted in time."""
    if time.monotonic() >= until:
        return False
    _end(key)
    parts = (_leave_session, _bury, _delete_steps, _empty_chunks, _forget_owner)
    return all(firestore.converge(partial(part, key), until=until) for part in parts)


def _end(key: str) -> bool:
    """Stop a turn that runs or waits; False when there was nothing to stop."""
    turn = record.load(key)
    if turn is None or turn.finished:
        return False
    with suppress(UnknownTurn):  # TTL was faster
        cancel.end(key, turn)
    return True


def _leave_session(key: str) -> Writes | None:
    """Take what the turn left out of its session (P3)."""
    turn = record.load(key)
    if turn is None or turn.request.session_id is None:
        return None
    session = sessions.load(turn.owner, turn.request.session_id)
    if session is None or all(entry.key != key for entry in session.entries):
        return None
    from google.cloud.firestore import DELETE_FIELD

    document = sessions.reference(session.key)
    return lambda batch: batch.update(document, {sessions.entry_path(key): DELETE_FIELD})


def _bury(key: str) -> Writes | None:
    """Put the tombstone up (P1). Its owner stays readable until the rest is deleted, too (P4)."""
    turn = record.load(key)
    if turn is None or turn.status == record.DELETED:
        return None
    fields = {
        "status": record.DELETED,
        "prompt": "",
        "requestHash": "",
        "sessionId": None,
        "historyHash": None,
        "waitingUntil": None,
    }
    unchanged = firestore.client().write_option(last_update_time=turn.updated_at)
    return lambda batch: batch.update(record.reference(key), fields, option=unchanged)


def _delete_steps(key: str) -> Writes | None:
    found = _documents(steps.collection(key).limit(BATCH_DOCUMENTS))

    def writes(batch: WriteBatch) -> None:
        for document in found:
            batch.delete(document)

    return writes if found else None


def _empty_chunks(key: str) -> Writes | None:
    """Take the content of the journal's chunks (P2): one without `last` is in no query any more."""
    from google.cloud.firestore import DELETE_FIELD

    found = _documents(journal.events(key).order_by(firestore.LAST).limit(BATCH_DOCUMENTS))

    def writes(batch: WriteBatch) -> None:
        for document in found:
            batch.update(document, {"frames": b"", firestore.LAST: DELETE_FIELD})

    return writes if found else None


def _forget_owner(key: str) -> Writes | None:
    turn = record.load(key)
    if turn is None or not turn.owner:
        return None
    return lambda batch: batch.update(record.reference(key), {firestore.OWNER: ""})


def _turns_of(owner: str) -> list[str]:
    """The keys of some of an owner's turns, tombstones that are not all deleted among them."""
    from google.cloud.firestore import FieldFilter

    turns = firestore.client().collection(firestore.TURNS)
    query = turns.where(filter=FieldFilter(firestore.OWNER, "==", owner)).limit(BATCH_TURNS)
    return [document.id for document in _documents(query)]


def _documents(query: Query) -> list[DocumentReference]:
    """Where the documents of a query are, without their content."""
    names = query.select([])
    found = firestore.read(lambda timeout: list(firestore.documents(names, timeout)))
    return [snapshot.reference for snapshot in found]
