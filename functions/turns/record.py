"""The turn's own document: what was asked, who asked, how it stands, who holds the lease."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from functions import firestore
from functions.errors import NewerSchema
from functions.turns.lease import Holder
from functions.turns.numbering import WINDOW

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentReference, DocumentSnapshot

SCHEMA = 1
"""Documents of a higher schema are left alone: a newer version of this package wrote them (R2).

It goes up only when an older version must keep its hands off. Otherwise a field that is added is
read with a default that says what its absence meant: turns in flight outlive a deploy.
"""

RUNNING, WAITING = "running", "waiting"
DONE, ERROR, CANCELLED = "done", "error", "cancelled"
DELETED = "deleted"
"""A tombstone (P1): nothing is left of the turn but that it was there."""
FINISHED = frozenset({DONE, ERROR, CANCELLED, DELETED})


def is_user(owner: str) -> bool:
    """Whether this owner is a user, whose turns have something to do with each other."""
    return owner.startswith("uid:")


def turn_key(owner: str, turn_id: str) -> str:
    """The document id of a caller's turn: another caller's turn is unreachable by construction."""
    return hashlib.sha256(json.dumps([owner, turn_id]).encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller asked for; `hash` tells the same request again from another one."""

    prompt: str
    session_id: str | None

    @property
    def hash(self) -> str:
        """SHA-256 of the request's canonical JSON."""
        canonical = json.dumps(
            {"prompt": self.prompt, "sessionId": self.session_id}, sort_keys=True
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """One turn as read at `read_at` (server time), last written at `updated_at` (server time)."""

    key: str
    turn_id: str
    owner: str
    run_id: str
    request: Request
    request_hash: str
    status: str
    holder: Holder
    window: int
    agent_version: str
    waiting_until: datetime | None
    """Of a waiting turn: when the first of its approvals expires."""
    history_hash: str | None
    """Names the history of its session that it was started with (H3)."""
    expire_at: datetime
    read_at: datetime
    updated_at: datetime
    created_at: datetime
    idle_seconds: float = 0.0
    """For how long nobody owned the turn, before the present owner."""

    @property
    def owned_seconds(self) -> float:
        """For how long, up to `read_at`, somebody owned it."""
        return (self.read_at - self.created_at).total_seconds() - self.idle_seconds

    @property
    def finished(self) -> bool:
        """Whether the turn has its terminal event."""
        return self.status in FINISHED

    @property
    def expired(self) -> bool:
        """Whether everything about the turn is gone, be it deleted yet or not (R1)."""
        return self.read_at >= self.expire_at

    @property
    def gone(self) -> bool:
        """Whether callers are told that there is nothing any more."""
        return self.expired or self.status == DELETED

    @property
    def lapsed(self) -> bool:
        """Whether the turn is to be taken over: it runs and its lease is over (L1), or it waits
        and an approval has expired.
        """
        if self.status == WAITING:
            return self.waiting_until is not None and self.read_at >= self.waiting_until
        return self.status == RUNNING and self.holder.lapsed(self.read_at, self.updated_at)

    @property
    def open(self) -> bool:
        """Whether it can still come to its end: past its retention only an owner that has not
        noticed yet can end it.
        """
        owned = self.status == RUNNING and not self.lapsed
        return not self.finished and (owned or not self.expired)

    @property
    def lapses_in(self) -> float:
        """Seconds after `read_at` at which the lease lapses if nobody renews it."""
        return self.holder.lapses_in(self.read_at, self.updated_at)


def reference(key: str) -> DocumentReference:
    """The turn's document."""
    return firestore.client().collection(firestore.TURNS).document(key)


def new_fields(
    owner: str,
    turn_id: str,
    request: Request,
    holder: Holder,
    *,
    agent_version: str,
    now: datetime,
    retention_hours: float,
    history_hash: str | None = None,
) -> dict[str, Any]:
    """The document of a new turn. `expireAt` is fixed here for all documents of the turn."""
    return {
        "schema": SCHEMA,
        "turnId": turn_id,
        firestore.OWNER: owner,
        "runId": secrets.token_hex(16),
        "requestHash": request.hash,
        "prompt": request.prompt,
        "sessionId": request.session_id,
        "status": RUNNING,
        "lease": holder.to_fields(),
        "window": WINDOW,
        "agentVersion": agent_version,
        "waitingUntil": None,
        "idleSeconds": 0.0,
        "historyHash": history_hash,
        firestore.EXPIRE_AT: now + timedelta(hours=retention_hours),
    }


def from_fields(
    key: str,
    fields: Mapping[str, Any],
    *,
    read_at: datetime,
    updated_at: datetime,
    created_at: datetime,
) -> Record:
    """Read a turn's document. Raises NewerSchema when this version cannot know what it means."""
    if fields["schema"] > SCHEMA:
        raise NewerSchema("the turn was written by a newer version of this service")
    return Record(
        key=key,
        turn_id=fields["turnId"],
        owner=fields[firestore.OWNER],
        run_id=fields["runId"],
        request=Request(fields["prompt"], fields["sessionId"]),
        request_hash=fields["requestHash"],
        status=fields["status"],
        holder=Holder.from_fields(fields["lease"]),
        window=fields["window"],
        agent_version=fields["agentVersion"],
        waiting_until=fields["waitingUntil"],
        history_hash=fields.get("historyHash"),
        expire_at=fields[firestore.EXPIRE_AT],
        read_at=read_at,
        updated_at=updated_at,
        created_at=created_at,
        idle_seconds=fields.get("idleSeconds", 0.0),
    )


def owned(keys: Iterable[str]) -> frozenset[str]:
    """Those of these turns that run and whose lease has not lapsed. Raises StorageUnavailable."""
    found = firestore.get_all(map(reference, keys), field_paths=("status", "lease"))
    return frozenset(key for key, snapshot in found.items() if _is_owned(snapshot))


def _is_owned(snapshot: DocumentSnapshot[Any]) -> bool:
    fields = snapshot.to_dict()
    if fields is None or fields["status"] != RUNNING:
        return False
    holder = Holder.from_fields(fields["lease"])
    return not holder.lapsed(snapshot.read_time, snapshot.update_time)


def load(key: str, *, within_seconds: float = firestore.READ_SECONDS) -> Record | None:
    """The turn, or None if there is none. Raises StorageUnavailable, NewerSchema."""
    snapshot = firestore.read(
        lambda timeout: reference(key).get(retry=None, timeout=timeout),
        within_seconds=within_seconds,
    )
    fields = snapshot.to_dict()
    if fields is None:
        return None
    return from_fields(
        key,
        fields,
        read_at=snapshot.read_time,
        updated_at=snapshot.update_time,
        created_at=snapshot.create_time,
    )
