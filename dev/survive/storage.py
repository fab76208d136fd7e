"""What the run left in Firestore, read from its documents: the lease, and the journal's chunks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from google.cloud import firestore

from dev.project import LOCAL_PROJECT
from functions.firestore import EVENTS, TURNS
from functions.turns.journal import Chunk
from functions.turns.lease import Holder

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentSnapshot


@dataclass(frozen=True)
class Lease:
    """Who holds a turn. Times are the server's."""

    epoch: int
    renewed_at: datetime
    lapses_at: datetime
    """When anybody else may take it, unless it is renewed."""


@dataclass(frozen=True)
class Commit:
    """A chunk of the journal. `at` is the server's time."""

    at: datetime
    chunk: Chunk


class Storage:
    """One turn's documents. Make it after the last process was started: it runs gRPC's threads."""

    def __init__(self, address: str, turn_id: str) -> None:
        os.environ["FIRESTORE_EMULATOR_HOST"] = address
        self._client = firestore.Client(project=LOCAL_PROJECT)
        self._turn_id = turn_id

    def lease(self) -> Lease:
        """Return the lease as it stands."""
        turn = self._turn()
        holder = Holder.from_fields((turn.to_dict() or {})["lease"])
        renewed_at = turn.update_time
        lapses_in = timedelta(seconds=holder.lapses_in(renewed_at, renewed_at))
        return Lease(holder.epoch, renewed_at, renewed_at + lapses_in)

    def commits(self) -> list[Commit]:
        """Return the journal."""
        chunks = self._turn().reference.collection(EVENTS).order_by("index").stream()
        return [Commit(one.create_time, Chunk.from_fields(one.to_dict() or {})) for one in chunks]

    def _turn(self) -> DocumentSnapshot[Any]:
        named = firestore.FieldFilter("turnId", "==", self._turn_id)
        (turn,) = self._client.collection(TURNS).where(filter=named).stream()
        return turn
