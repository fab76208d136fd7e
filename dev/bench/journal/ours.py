"""A turn of ours, written straight into the journal: for figures that need no agent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from dev import token
from functions import firestore
from functions.identity.caller import Caller
from functions.turns import journal, record
from functions.turns.journal import Boundary, Chunk
from functions.turns.lease import Holder, Lease
from functions.wire import sse
from functions.wire.events import Done, Token

_RETENTION_HOURS = 24


class Journal:
    """A running turn and the lease on it, held for an hour."""

    def __init__(self, turn_id: str) -> None:
        owner = Caller(token.APP).owner_of(turn_id)
        self.key = record.turn_key(owner, turn_id)
        self._index = 0
        self._last = 0
        self._length = 0
        now = datetime.now(timezone.utc)
        self._expire_at = now + timedelta(hours=_RETENTION_HOURS)
        holder = Holder.first(3600)
        fields = record.new_fields(
            owner,
            turn_id,
            record.Request("bench", None),
            holder,
            agent_version="bench-1",
            now=now,
            retention_hours=_RETENTION_HOURS,
        )
        record.reference(self.key).create(fields)
        self._lease = Lease(holder, sent_at=time.monotonic())

    def append(self, texts: Sequence[str]) -> None:
        """Commit tokens as one chunk."""
        events = [Token(text) for text in texts]
        frames = [sse.encode(n, event) for n, event in enumerate(events, start=self._last + 1)]
        self._length += sum(map(len, texts))
        self._append(frames)

    def finish(self) -> None:
        """Commit the terminal event and the status."""
        self._append([sse.encode(self._last + 1, Done("stop"))])
        record.reference(self.key).update({"status": record.DONE})

    def _append(self, frames: Sequence[bytes]) -> None:
        chunk = Chunk(
            index=self._index,
            epoch=self._lease.holder.epoch,
            nonce=self._lease.holder.nonce,
            after=self._last,
            first=self._last + 1,
            last=self._last + len(frames),
            length=self._length,
            boundary=Boundary(),
            frames=b"".join(frames),
        )
        journal.append(self.key, chunk, self._lease, self._expire_at)
        self._index += 1
        self._last = chunk.last


def ready() -> None:
    """Make the client and have it connect, so that no figure pays for that."""
    list(firestore.client().collection(firestore.TURNS).limit(1).stream())
