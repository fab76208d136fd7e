"""The design that ours is compared with: one document per event, written in a transaction that
reads the turn's document and checks the lease.

Written as well as it can be: one transaction for as many events as there are, one round trip to
begin it together with its read, one to commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from google.cloud import firestore

from functions.errors import LeaseLost
from functions.turns.lease import Holder
from functions.wire import sse
from functions.wire.events import Token

if TYPE_CHECKING:
    from google.cloud.firestore import Client, DocumentReference, Transaction

COLLECTION = "event_documents"
"""Not the name that our chunks have: for a query, the emulator goes through all documents of
collections of one name, so these would slow ours down."""

_BATCH = 500


class EventDocuments:
    """A turn whose events are documents of their own."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._turn: DocumentReference = client.collection("baseline").document(key)
        self._events = self._turn.collection(COLLECTION)
        self._holder = Holder.first(9)
        self._expire_at = datetime.now(timezone.utc) + timedelta(hours=24)
        self._turn.set({"status": "running", "lease": self._holder.to_fields()})

    def append(self, first: int, texts: Sequence[str]) -> None:
        """Commit tokens with ids from `first` on, at most 500. Raises LeaseLost."""

        @firestore.transactional
        def write(transaction: Transaction) -> None:
            turn = self._turn.get(transaction=transaction)
            lease = (turn.to_dict() or {})["lease"]
            if (lease["owner"], lease["epoch"]) != (self._holder.nonce, self._holder.epoch):
                raise LeaseLost
            for number, text in enumerate(texts, start=first):
                event = {
                    "id": number,
                    "type": "token",
                    "data": text,
                    "epoch": self._holder.epoch,
                    "expireAt": self._expire_at,
                }
                transaction.create(self._events.document(f"{number:08d}"), event)

        write(self._client.transaction())

    def fill(self, texts: Sequence[str]) -> None:
        """Append any number of tokens, in full batches."""
        for start in range(0, len(texts), _BATCH):
            self.append(start + 1, texts[start : start + _BATCH])

    def replay(self) -> Iterator[bytes]:
        """Read all events back, as frames."""
        for snapshot in self._events.order_by("id").stream():
            event = snapshot.to_dict() or {}
            yield sse.encode(event["id"], Token(event["data"]))
