"""Sessions: turns of one owner that know of each other.

- H1: one turn of a session runs or waits at a time. The claim is a field of the session's document,
  written in the commit that creates the turn, on the precondition that the session is unchanged
  since it was read. A claim of a turn that has ended, or whose time is over, holds nobody up.
- H2: what a turn adds to its session, and the claim's release, are one commit with its terminal
  event. A session that is gone by then is not made again, and does not keep the turn from ending.
- H3: all owners of a turn see the same history. One that cannot ends the turn with `gone`.

Each turn's entry is a field of its own, so that a turn that ends and another one's deletion change
a session at once without reading it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from functions import firestore
from functions.errors import NewerSchema, SessionBusy
from functions.turns import record
from functions.turns.history import Entry

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentReference, DocumentSnapshot

SCHEMA = 1
PAGE_SESSIONS = 50

_HISTORY = "history"
_LISTED = (
    "schema",
    firestore.OWNER,
    "sessionId",
    "createdAt",
    firestore.UPDATED_AT,
    "turn",
    "turns",
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The turn that has the session: its document's key, and the id its client knows it by."""

    key: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class Session:
    """One session as read at `read_at` (server time)."""

    key: str
    owner: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    claim: Claim | None
    turns: int
    """How many turns were started in it."""
    entries: tuple[Entry, ...]
    """What its turns left, oldest first; none where the session was only listed."""
    expire_at: datetime
    read_at: datetime
    written_at: datetime

    @property
    def expired(self) -> bool:
        """Whether it is past its own time, deleted yet or not."""
        return self.read_at >= self.expire_at


def session_key(owner: str, session_id: str) -> str:
    """The document id of a caller's session: another caller's is unreachable by construction."""
    return hashlib.sha256(json.dumps([owner, session_id]).encode()).hexdigest()[:40]


def reference(key: str) -> DocumentReference:
    """The session's document."""
    return firestore.client().collection(firestore.SESSIONS).document(key)


def from_snapshot(snapshot: DocumentSnapshot[Any]) -> Session | None:
    """Read a session's document; None when there is none. Raises NewerSchema."""
    fields = snapshot.to_dict()
    if fields is None:
        return None
    if fields["schema"] > SCHEMA:
        raise NewerSchema("the session was written by a newer version of this service")
    claim = fields["turn"]
    entries = [Entry.from_fields(key, entry) for key, entry in fields.get(_HISTORY, {}).items()]
    return Session(
        key=snapshot.id,
        owner=fields["owner"],
        session_id=fields["sessionId"],
        created_at=fields["createdAt"],
        updated_at=fields[firestore.UPDATED_AT],
        claim=None if claim is None else Claim(claim["key"], claim["id"]),
        turns=fields["turns"],
        entries=tuple(sorted(entries, key=lambda entry: entry.position)),
        expire_at=fields[firestore.EXPIRE_AT],
        read_at=snapshot.read_time,
        written_at=snapshot.update_time,
    )


def load(owner: str, session_id: str) -> Session | None:
    """The session, expired or not; None if there is none.

    Raises StorageUnavailable, NewerSchema.
    """
    document = reference(session_key(owner, session_id))
    return from_snapshot(firestore.read(lambda timeout: document.get(retry=None, timeout=timeout)))


def new_fields(
    owner: str, session_id: str, claim: Mapping[str, str], expire_at: datetime
) -> dict[str, Any]:
    """The document of a session that begins with the turn of `claim`."""
    from google.cloud.firestore import SERVER_TIMESTAMP

    return {
        "schema": SCHEMA,
        firestore.OWNER: owner,
        "sessionId": session_id,
        "createdAt": SERVER_TIMESTAMP,
        firestore.UPDATED_AT: SERVER_TIMESTAMP,
        "turn": claim,
        "turns": 1,
        _HISTORY: {},
        firestore.EXPIRE_AT: expire_at,
    }


def require_free(session: Session | None) -> None:
    """Raise SessionBusy while a turn runs or waits in the session (H1)."""
    if session is None or session.expired or session.claim is None:
        return
    turn = record.load(session.claim.key)
    if turn is not None and turn.open:
        raise SessionBusy(session.claim.turn_id)


def entry_path(turn_key: str) -> str:
    """The path of a turn's entry in its session's document."""
    return f"{_HISTORY}.`{turn_key}`"


def page(owner: str, after: tuple[datetime, str] | None = None) -> list[Session]:
    """Up to `PAGE_SESSIONS` of an owner's sessions, the last used first, without what their turns
    left; those that follow `after`, the `updated_at` and key of one of them. Expired ones, too.

    Raises StorageUnavailable, NewerSchema.
    """
    from google.cloud.firestore import FieldFilter

    collection = firestore.client().collection(firestore.SESSIONS)
    query = (
        collection.where(filter=FieldFilter(firestore.OWNER, "==", owner))
        .order_by(firestore.UPDATED_AT, direction="DESCENDING")
        .order_by("__name__", direction="DESCENDING")
        .select((*_LISTED, firestore.EXPIRE_AT))
        .limit(PAGE_SESSIONS)
    )
    if after is not None:
        updated_at, key = after
        query = query.start_after({firestore.UPDATED_AT: updated_at, "__name__": reference(key)})
    found = firestore.read(lambda timeout: list(firestore.documents(query, timeout)))
    return [session for one in found if (session := from_snapshot(one)) is not None]
