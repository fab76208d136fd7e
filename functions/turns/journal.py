"""The journal: a turn's events as chunks of exact SSE bytes, appended under a fence.

- J1: chunks have dense indexes from 0; each carries whole frames, and their bytes never change
  unless the turn is deleted (P2).
- J2: an append creates the document at the next index. Creating is the fence: whoever took over
  created that index first, so an owner of an older epoch fails at its next append.
- J3: every answer to an append is applied, not applied, or read back. A chunk is ours if it has
  our nonce and our bytes.
- J4: a chunk names the id it follows (`after`), so a reader at a cursor knows whether chunks
  between are missing. Then it is told `gone`, never left in silence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from functions import firestore, logs
from functions.errors import InvariantBroken, LeaseLost, StorageUnavailable
from functions.turns import record
from functions.turns.lease import Holder, Lease
from functions.turns.numbering import first_id_of_epoch
from functions.wire import sse
from functions.wire.events import Event, Rewind

if TYPE_CHECKING:
    from google.cloud.firestore import CollectionReference, DocumentReference, WriteBatch

PAGE_CHUNKS = 512
PAGE_BYTES = 1024 * 1024
"""A page of a replay stops at whichever comes first: the memory one reader may take."""
PIECE_FIELDS = ("index", "after", "first", firestore.LAST, "frames")
"""What a reader needs of a chunk. Decoding the rest would take half of a replay's time."""

COMMIT_BYTES = 3_500_000
"""The most one commit may carry; the emulator refuses 4 MiB, production 10 MiB."""

COMMIT_SECONDS = 3.0
"""The longest wait for one commit's answer before it is read back; less when the lease is short."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a re-run begins: the end of the last finished step, or the start of the turn."""

    to: int = 0
    """Id of the last event of the last finished step."""
    length: int = 0
    """UTF-16 length of the text up to it."""
    steps: int = 0
    """How many steps are finished; each has its document."""
    epoch: int = 0
    """The epoch that finished the last of them: how long nothing has been gained since."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk as a reader needs it."""

    index: int
    after: int
    """The id it follows."""
    first: int
    last: int
    frames: bytes

    @property
    def terminal(self) -> bool:
        """Whether the turn ends here."""
        return sse.ends_turn(self.frames)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One document of the journal. An empty one (`last == first - 1`) only carries a boundary."""

    index: int
    epoch: int
    nonce: str
    after: int
    """The last id of the chunk before; `first - 1` unless an epoch begins here."""
    first: int
    last: int
    length: int
    """UTF-16 length of the turn's text after this chunk."""
    boundary: Boundary
    frames: bytes

    @property
    def terminal(self) -> bool:
        """Whether the turn ends here."""
        return sse.ends_turn(self.frames)

    @property
    def final_status(self) -> str:
        """The status of a turn that ends with this chunk."""
        last = list(sse.decode(self.frames))[-1]
        if last.type == "error":
            return record.ERROR
        return record.CANCELLED if last.data["reason"] == "cancelled" else record.DONE

    def to_fields(self, expire_at: datetime) -> dict[str, Any]:
        """As stored. `frames` are bytes: no encoding can refuse or change them."""
        return {
            "index": self.index,
            "epoch": self.epoch,
            "nonce": self.nonce,
            "after": self.after,
            "first": self.first,
            firestore.LAST: self.last,
            "length": self.length,
            "boundary": {
                "to": self.boundary.to,
                "length": self.boundary.length,
                "steps": self.boundary.steps,
                "epoch": self.boundary.epoch,
            },
            "frames": self.frames,
            firestore.EXPIRE_AT: expire_at,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Chunk:
        """Read a stored chunk. That of a deleted turn has no `last` any more: it is empty (P2)."""
        boundary = fields["boundary"]
        return cls(
            index=fields["index"],
            epoch=fields["epoch"],
            nonce=fields["nonce"],
            after=fields["after"],
            first=fields["first"],
            last=fields.get(firestore.LAST, fields["first"] - 1),
            length=fields["length"],
            boundary=Boundary(
                boundary["to"], boundary["length"], boundary["steps"], boundary["epoch"]
            ),
            frames=fields["frames"],
        )


def opening(
    tail: Chunk | None, holder: Holder, window: int, rewind_to: Boundary, *events: Event
) -> Chunk:
    """The chunk that opens the epoch of `holder` after `tail`: a rewind, then `events`.

    It is numbered above every id that the owner before may have shown (N3).
    """
    last = 0 if tail is None else tail.last
    first = first_id_of_epoch(last, window)
    told = [Rewind(rewind_to.to, rewind_to.length), *events]
    return Chunk(
        index=0 if tail is None else tail.index + 1,
        epoch=holder.epoch,
        nonce=holder.nonce,
        after=last,
        first=first,
        last=first + len(events),
        length=rewind_to.length,
        boundary=Boundary() if tail is None else tail.boundary,
        frames=b"".join([sse.encode(first + n, event) for n, event in enumerate(told)]),
    )


class AppendRefused(Exception):
    """Firestore will never take this chunk; it is not tried again. `cause` is its error's name."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def events(key: str) -> CollectionReference:
    """The collection of a turn's chunks."""
    collection: CollectionReference = record.reference(key).collection(firestore.EVENTS)
    return collection


def document(key: str, index: int) -> DocumentReference:
    """The chunk at an index; its zero-padded id sorts as the index does."""
    return events(key).document(f"{index:08d}")


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive chunks of a journal. `more`: it was cut off, and there may be further ones."""

    chunks: list[Piece]
    more: bool


def page(key: str, cursor: int, *, within_seconds: float = firestore.READ_SECONDS) -> Page:
    """The chunks with events above `cursor`, in order. Raises StorageUnavailable."""
    from google.cloud.firestore import FieldFilter

    query = (
        events(key)
        .where(filter=FieldFilter(firestore.LAST, ">", cursor))
        .order_by(firestore.LAST)
        .select(PIECE_FIELDS)
        .limit(PAGE_CHUNKS)
    )

    def fetch(timeout: float) -> Page:
        chunks: list[Piece] = []
        size = 0
        for snapshot in firestore.documents(query, timeout):
            fields = snapshot.to_dict() or {}
            chunks.append(Piece(*(fields[name] for name in PIECE_FIELDS)))
            size += len(chunks[-1].frames)
            if size >= PAGE_BYTES:
                return Page(chunks, more=True)
        return Page(chunks, more=len(chunks) == PAGE_CHUNKS)

    return firestore.read(fetch, within_seconds=within_seconds)


def tail(key: str, *, within_seconds: float = firestore.READ_SECONDS) -> Chunk | None:
    """The last chunk, or None before the first append. Raises StorageUnavailable."""
    query = events(key).order_by(firestore.LAST, direction="DESCENDING").limit(1)
    found = firestore.read(
        lambda timeout: list(firestore.documents(query, timeout)),
        within_seconds=within_seconds,
    )
    return Chunk.from_fields(found[0].to_dict() or {}) if found else None


def chunk_at(
    key: str, index: int, *, within_seconds: float = firestore.READ_SECONDS
) -> Chunk | None:
    """The chunk at an index, or None if there is none. Raises StorageUnavailable."""
    found = aged_chunk_at(key, index, within_seconds=within_seconds)
    return None if found is None else found[0]


def aged_chunk_at(
    key: str, index: int, *, within_seconds: float = firestore.READ_SECONDS
) -> tuple[Chunk, float] | None:
    """The chunk at an index, and how many seconds after its commit it was read: server times."""
    snapshot = firestore.read(
        lambda timeout: document(key, index).get(retry=None, timeout=timeout),
        within_seconds=within_seconds,
    )
    fields = snapshot.to_dict()
    if fields is None:
        return None
    age = (snapshot.read_time - snapshot.create_time).total_seconds()
    return Chunk.from_fields(fields), age


def append(
    key: str,
    chunk: Chunk,
    lease: Lease,
    expire_at: datetime,
    *,
    also: Callable[[WriteBatch], None] = lambda _batch: None,
    spare: Callable[[WriteBatch], None] | None = None,
) -> None:
    """Append `chunk` at its index, together with the writes of `also`, as one atomic commit.

    The writes of `spare` ride along, too, unless a document that they update is gone: then the
    commit is made without them.

    Returns when the commit is known to be applied. Raises LeaseLost when another epoch has the
    position or the lease's time is over before the answer is known, AppendRefused when Firestore
    will never take it, InvariantBroken when the position holds something that cannot be there.
    """

    def writes(batch: WriteBatch) -> None:
        batch.create(document(key, chunk.index), chunk.to_fields(expire_at))
        also(batch)
        if spare is not None:
            spare(batch)

    pauses = firestore.backoff()
    while True:
        timeout = min(COMMIT_SECONDS, lease.holder.seconds / 3, lease.remaining())
        answer = firestore.commit(writes, timeout_seconds=timeout)
        kind = answer.kind
        if kind is firestore.Kind.APPLIED:
            return
        if kind is firestore.Kind.REFUSED:
            raise AppendRefused(answer.cause)
        logs.info("append not confirmed", index=chunk.index, cause=answer.cause)
        if kind is not firestore.Kind.RETRY and _ours(key, chunk, lease):
            return
        if kind is firestore.Kind.STALE and spare is not None:
            spare = None  # not applied, by its fault or the turn's: the next answer tells which
            continue
        if kind is firestore.Kind.STALE:
            # `also` updates the turn's document: it was deleted under us.
            lease.lose("the turn was deleted")
        time.sleep(next(pauses))


def _ours(key: str, chunk: Chunk, lease: Lease) -> bool:
    """Whether `chunk` is stored, by us; False: nothing is stored there yet. Raises LeaseLost."""
    try:
        stored = chunk_at(key, chunk.index, within_seconds=lease.remaining())
    except StorageUnavailable:
        return False  # sending the same bytes again is safe, and the lease bounds how often
    if stored is None:
        return False
    if stored.nonce == chunk.nonce and (stored == chunk or not stored.frames):
        return True  # also when the turn was deleted since
    if stored.epoch > chunk.epoch:
        lease.lose(f"epoch {stored.epoch} has the turn")
        raise LeaseLost
    raise InvariantBroken(
        f"J2: chunk {chunk.index} of epoch {chunk.epoch} found epoch {stored.epoch} there"
    )
