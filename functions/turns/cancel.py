"""Stopping a turn, whoever runs it: an append that takes the turn away and ends it at once.

C1: one atomic commit creates the next chunk, `[rewind to the last committed event, done
cancelled]`, and writes the status and `epoch + 1`. It does not wait for the lease: creating the
chunk is the fence (J2), so the owner fails at its next append or renewal, and nobody takes the turn
over. It needs nothing more to survive any crash.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from functions import firestore, logs
from functions.errors import Gone, StorageUnavailable, UnknownTurn
from functions.turns import journal, membership, record
from functions.turns.journal import Boundary, Chunk
from functions.turns.record import Record
from functions.wire.events import Done

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch

CANCEL_SECONDS = 10.0
"""How long a cancel races with an owner that appends all the time; it wins in one try or two."""


def cancel(owner: str, turn_id: str) -> str:
    """End the turn as cancelled, unless it has ended already; its status after that.

    Raises UnknownTurn, Gone, StorageUnavailable, NewerSchema.
    """
    key = record.turn_key(owner, turn_id)
    logs.bind(turn=key)
    turn = record.load(key)
    if turn is not None and turn.gone:
        raise Gone("the turn is past its retention, or was deleted")
    return end(key, turn)


def end(key: str, turn: Record | None) -> str:
    """End a turn that was read so, also one past its retention; its status after that.

    Raises UnknownTurn, StorageUnavailable, NewerSchema.
    """
    until = time.monotonic() + CANCEL_SECONDS
    while time.monotonic() < until:
        if turn is None:
            raise UnknownTurn("there is no such turn")
        if turn.finished:
            return turn.status
        tail = journal.tail(key)
        if tail is not None and tail.terminal:
            # Ended between the two reads, or its status is still to be put right.
            return tail.final_status
        if _try(turn, tail):
            logs.info("turn cancelled", run=turn.run_id, epoch=turn.holder.epoch)
            return record.CANCELLED
        turn = record.load(key)
    raise StorageUnavailable("the turn could not be stopped in time")


def _try(turn: Record, tail: Chunk | None) -> bool:
    """Commit the end after `tail`; False when somebody else appended there first."""
    # Somebody may have taken it over between the two reads: above both epochs (J2).
    epoch = turn.holder.epoch if tail is None else max(turn.holder.epoch, tail.epoch)
    holder = replace(turn.holder, epoch=epoch).next(turn.holder.seconds)
    # What an owner showed and did not commit is withdrawn; what it committed stays.
    committed = Boundary() if tail is None else Boundary(tail.last, tail.length)
    chunk = journal.opening(tail, holder, turn.window, committed, Done("cancelled"))
    leave_session = membership.release(turn)

    def writes(batch: WriteBatch) -> None:
        batch.create(journal.document(turn.key, chunk.index), chunk.to_fields(turn.expire_at))
        fields = {"status": record.CANCELLED, "lease": holder.to_fields()}
        batch.update(record.reference(turn.key), fields)
        leave_session(batch)

    def since(within_seconds: float) -> datetime | None:
        stored = record.load(turn.key, within_seconds=within_seconds)
        ours = stored is not None and stored.holder.nonce == holder.nonce
        return stored.updated_at if stored is not None and ours else None

    at = firestore.settle(writes, since, within_seconds=firestore.READ_SECONDS)
    return at is not None
