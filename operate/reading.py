"""What Firestore holds of turns, with the server's times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from functions import firestore
from functions.turns import journal, record, steps
from functions.turns.journal import Chunk
from functions.turns.record import Record
from functions.turns.steps import Step

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentSnapshot, Query

READ_SECONDS = 60.0
"""A long journal takes a while; nobody's lease waits for an operator."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A chunk, and when it was committed."""

    chunk: Chunk
    at: datetime
    size: int
    """Bytes it stores, as Firestore counts a document."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step, with what is stored beside its outcome."""

    key: str
    """The turn's."""
    step: Step
    written_at: datetime
    epoch: int
    notes: tuple[Mapping[str, Any], ...]
    size: int


@dataclass(frozen=True, slots=True)
class Found:
    """All there is of a turn."""

    turn: Record
    created_at: datetime
    size: int
    chunks: tuple[Committed, ...]
    """In order of their indexes, of which some may be missing."""
    steps: tuple[Recorded, ...]


def turn(key: str) -> Found | None:
    """A turn with its journal and its steps; None if there is none.

    Raises StorageUnavailable, NewerSchema.
    """
    snapshot = firestore.read(
        lambda timeout: record.reference(key).get(retry=None, timeout=timeout),
        within_seconds=READ_SECONDS,
    )
    if snapshot.to_dict() is None:
        return None
    chunks = _read(journal.events(key).order_by("__name__"))
    recorded = _read(record.reference(key).collection(firestore.STEPS).order_by("__name__"))
    return Found(
        _record(snapshot),
        snapshot.create_time,
        size_of(snapshot),
        tuple(
            Committed(Chunk.from_fields(one.to_dict() or {}), one.create_time, size_of(one))
            for one in chunks
            if firestore.LAST in (one.to_dict() or {})  # else its content was deleted
        ),
        tuple(_recorded(one) for one in recorded),
    )


def turns(status: str, limit: int) -> list[Record]:
    """Turns of a status, in no order that means anything. Raises StorageUnavailable."""
    from google.cloud.firestore import FieldFilter

    collection = firestore.client().collection(firestore.TURNS)
    query = collection.where(filter=FieldFilter("status", "==", status)).limit(limit)
    return [_record(one) for one in _read(query)]


def steps_in_doubt(limit: int) -> list[Recorded]:
    """Steps of all turns whose effect nobody knows. Raises StorageUnavailable."""
    from google.cloud.firestore import FieldFilter

    group = firestore.client().collection_group(firestore.STEPS)
    query = group.where(filter=FieldFilter("status", "==", steps.IN_DOUBT)).limit(limit)
    return [_recorded(one) for one in _read(query)]


def size_of(snapshot: DocumentSnapshot[Any]) -> int:
    """A document's bytes (https://firebase.google.com/docs/firestore/storage-size)."""
    path = snapshot.reference.path.split("/")
    name = sum(len(part.encode()) + 1 for part in path) + 16
    return name + _size(snapshot.to_dict() or {}) + 32


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(len(name.encode()) + 1 + _size(one) for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return sum(_size(one) for one in value)
    if isinstance(value, str):
        return len(value.encode()) + 1
    if isinstance(value, bytes):
        return len(value)
    return 1 if value is None or isinstance(value, bool) else 8


def _read(query: Query) -> list[DocumentSnapshot[Any]]:
    return firestore.read(
        lambda _timeout: list(firestore.documents(query, READ_SECONDS)),
        within_seconds=READ_SECONDS,
    )


def _record(snapshot: DocumentSnapshot[Any]) -> Record:
    return record.from_fields(
        snapshot.id,
        snapshot.to_dict() or {},
        created_at=snapshot.create_time,
        read_at=snapshot.read_time,
        updated_at=snapshot.update_time,
    )


def _recorded(snapshot: DocumentSnapshot[Any]) -> Recorded:
    fields = snapshot.to_dict() or {}
    return Recorded(
        key=snapshot.reference.parent.parent.id,
        step=Step.from_fields(fields),
        written_at=_written_at(snapshot),
        epoch=fields["epoch"],
        notes=tuple(fields.get(steps.NOTES, ())),
        size=size_of(snapshot),
    )


def _written_at(snapshot: DocumentSnapshot[Any]) -> datetime:
    """Its last write. The client gives a collection group's documents times of another type."""
    at: Any = snapshot.update_time
    written: datetime = at if isinstance(at, datetime) else at.ToDatetime(UTC)
    return written
