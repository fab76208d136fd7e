"""An owner's end of the journal: where the next chunk goes, and what it says.

Not thread safe: the writer lets one append be made at a time (W2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from functions import logs
from functions.errors import LeaseLost
from functions.turns import journal
from functions.turns.draft import Draft, Said
from functions.turns.durations import Durations
from functions.turns.journal import AppendRefused, Boundary, Chunk
from functions.turns.lease import Lease
from functions.turns.record import Record
from functions.wire import sse
from functions.wire.events import Event

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch

Also = Callable[["WriteBatch", int], None]
"""Stages writes beside a chunk; it is given the id of the chunk's last event."""
Spare = Callable[["WriteBatch"], None]
"""Stages writes that are left out if a document which they update is gone."""


Compose = Callable[[Event], Chunk]
"""Makes the next chunk of one event."""


def nothing(_batch: WriteBatch, _last: int) -> None:
    """No writes beside the chunk."""


class Appender:
    """Appends the chunks of one epoch after `begins`, the last one that is committed, or None."""

    def __init__(self, turn: Record, lease: Lease, draft: Draft, begins: Chunk | None) -> None:
        """`draft` says what comes before the next chunk."""
        self._turn = turn
        self._lease = lease
        self._draft = draft
        self._index = 0 if begins is None else begins.index + 1
        self._boundary = Boundary() if begins is None else begins.boundary
        self.flushes = Durations()
        """How long each append took until it was known to be applied."""

    def append(
        self,
        part: Sequence[Said],
        *,
        finishes_step: bool = False,
        also: Also = nothing,
        spare: Spare | None = None,
    ) -> None:
        """Append one chunk of `part`, together with the other writes; with `finishes_step` a
        re-run begins after it.

        Returns when that is known to be applied. Raises LeaseLost, or AppendRefused when Firestore
        will never take it.
        """
        confirmed = self._draft.confirmed
        last = part[-1].id if part else confirmed
        chunk = Chunk(
            index=self._index,
            epoch=self._lease.holder.epoch,
            nonce=self._lease.holder.nonce,
            after=confirmed,
            first=part[0].id if part else confirmed + 1,
            last=last,
            length=part[-1].length if part else self._draft.confirmed_length,
            boundary=self._boundary_after(last) if finishes_step else self._boundary,
            frames=b"".join([item.frame for item in part]),
        )
        sent_at = time.monotonic()
        try:
            journal.append(
                self._turn.key,
                chunk,
                self._lease,
                self._turn.expire_at,
                also=lambda batch: also(batch, last),
                spare=spare,
            )
        except AppendRefused as error:
            logs.error("the journal refused a chunk", index=chunk.index, cause=error.cause)
            raise
        except Exception:  # noqa: BLE001 - whatever it was, its frames are not in the journal
            self.lose("an append broke down")
        self.flushes.add(time.monotonic() - sent_at)
        self.advance(chunk)

    def compose(self, event: Event) -> Chunk:
        """The next chunk, of one event that finishes a step, for whoever stores it otherwise.

        Nothing else may be pending.
        """
        event_id = self._draft.next_id
        return Chunk(
            index=self._index,
            epoch=self._lease.holder.epoch,
            nonce=self._lease.holder.nonce,
            after=self._draft.confirmed,
            first=event_id,
            last=event_id,
            length=self._draft.length,
            boundary=self._boundary_after(event_id),
            frames=sse.encode(event_id, event),
        )

    def advance(self, chunk: Chunk) -> None:
        """Go on after `chunk`, which is known to be stored."""
        self._index = chunk.index + 1
        self._boundary = chunk.boundary

    def lose(self, why: str) -> NoReturn:
        """Give the lease up after an error that says nothing of the journal. Raises LeaseLost."""
        logs.error(why, index=self._index)
        self._lease.lose(why)
        raise LeaseLost from None

    def _boundary_after(self, last: int) -> Boundary:
        """The boundary when a step is finished by event `last`."""
        epoch = self._lease.holder.epoch
        return Boundary(last, self._draft.length, self._boundary.steps + 1, epoch)
