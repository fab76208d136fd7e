"""Taking a turn's lease: as its first owner, or from one whose lease lapsed.

T1: one atomic commit creates the epoch chunk at the next index (the fence, J2) and writes the
lease on the precondition that the turn's document is unchanged since it was read as lapsed (L1).
No transaction: nothing is locked, and a taker that dies leaves nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from functions import firestore
from functions.settings import Settings
from functions.turns import journal, record
from functions.turns.journal import Boundary, Chunk
from functions.turns.lease import Holder, Lease
from functions.turns.membership import Membership
from functions.turns.record import Record, Request

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease just taken, and where its owner begins to write."""

    turn: Record
    lease: Lease
    begins: Chunk | None
    """The epoch chunk; None in a new turn, whose journal is empty."""
    whole: bool = True
    """Whether all that a re-run needs is there; if not, the turn can only be ended."""
    membership: Membership | None = None
    """Of a new turn: its place in its session."""

    @property
    def attempts(self) -> int:
        """Owners since a step was last finished, this one included."""
        gained = 0 if self.begins is None else self.begins.boundary.epoch
        return self.turn.holder.epoch - gained


def _no_more(_batch: WriteBatch) -> None:
    """Nothing but the lease."""


def create(
    owner: str,
    turn_id: str,
    request: Request,
    *,
    agent_version: str,
    settings: Settings,
    membership: Membership | None = None,
    also: Callable[[WriteBatch], None] = _no_more,
) -> Taken | None:
    """Create a turn and take its first lease, in one commit with the writes of `also`; None when
    the turn exists already, or a precondition of `also` failed.

    Of any number of callers at once, one creates it. Raises StorageUnavailable.
    """
    key = record.turn_key(owner, turn_id)
    holder = Holder.first(settings.lease_seconds)
    fields = record.new_fields(
        owner,
        turn_id,
        request,
        holder,
        agent_version=agent_version,
        now=datetime.now(UTC),
        retention_hours=settings.retention_hours,
        history_hash=None if membership is None else membership.history_hash,
    )

    def writes(batch: WriteBatch) -> None:
        batch.create(record.reference(key), fields)
        also(batch)

    lease, at = _take(key, holder, writes)
    if at is None:
        return None
    turn = record.from_fields(key, fields, read_at=at, updated_at=at, created_at=at)
    return Taken(turn, lease, begins=None, membership=membership)


def take_over(
    turn: Record, *, settings: Settings, also: Callable[[WriteBatch], None] = _no_more
) -> Taken | None:
    """Take the lease of a turn that was read as lapsed or waiting, together with the writes of
    `also`; None when somebody else was faster, or the turn turns out to be finished.

    Raises StorageUnavailable.
    """
    tail = journal.tail(turn.key)
    if tail is not None and tail.terminal:
        _repair(turn, tail)
        return None
    whole = _is_whole(turn, tail)
    holder = turn.holder.next(settings.lease_seconds)
    # Nobody wrote the turn since its last owner did: its budget does not pay for that time.
    idle_seconds = turn.idle_seconds + (turn.read_at - turn.updated_at).total_seconds()
    boundary = Boundary() if tail is None else tail.boundary
    chunk = journal.opening(tail, holder, turn.window, boundary)

    def writes(batch: WriteBatch) -> None:
        unchanged = firestore.client().write_option(last_update_time=turn.updated_at)
        fields = {
            "lease": holder.to_fields(),
            "status": record.RUNNING,
            "waitingUntil": None,
            "idleSeconds": idle_seconds,
        }
        batch.update(record.reference(turn.key), fields, option=unchanged)
        batch.create(
            journal.document(turn.key, chunk.index), chunk.to_fields(expire_at=turn.expire_at)
        )
        also(batch)

    lease, at = _take(turn.key, holder, writes)
    if at is None:
        return None
    now = replace(
        turn,
        holder=holder,
        status=record.RUNNING,
        read_at=at,
        updated_at=at,
        idle_seconds=idle_seconds,
    )
    return Taken(now, lease, begins=chunk, whole=whole)


def _is_whole(turn: Record, tail: Chunk | None) -> bool:
    """Whether the journal still begins at its beginning: else effects would repeat."""
    if tail is None:
        return turn.holder.epoch == 1
    return tail.index == 0 or journal.chunk_at(turn.key, 0) is not None


def _repair(turn: Record, tail: Chunk) -> None:
    """Make the status agree with a terminal event that is in the journal; append nothing."""
    status = tail.final_status
    unchanged = firestore.client().write_option(last_update_time=turn.updated_at)
    firestore.commit(
        lambda batch: batch.update(
            record.reference(turn.key), {"status": status}, option=unchanged
        ),
        timeout_seconds=firestore.TRY_SECONDS,
    )


def _take(
    key: str, holder: Holder, writes: Callable[[WriteBatch], None]
) -> tuple[Lease, datetime | None]:
    """Send `writes`, which store `holder`; the lease, and since when it is ours, if it is.

    That instant is the server's, of the turn document's last write: the first renewal's
    precondition.
    """

    def since(within_seconds: float) -> datetime | None:
        turn = record.load(key, within_seconds=within_seconds)
        return turn.updated_at if turn is not None and turn.holder.nonce == holder.nonce else None

    lease = Lease(holder, sent_at=time.monotonic())
    return lease, firestore.settle(writes, since, within_seconds=holder.seconds)
