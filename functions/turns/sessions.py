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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from functions import firestore, logs
from functions.errors import Gone, NewerSchema, SessionBusy
from functions.turns import history, journal, record
from functions.turns.history import Entry
from functions.turns.numbering import continues
from functions.turns.record import Record
from functions.wire import sse
from functions.wire.fold import Fold, fold

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentReference, DocumentSnapshot, WriteBatch

SCHEMA = 1


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
    """What its turns left, oldest first."""
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
    entries = [Entry.from_fields(key, entry) for key, entry in fields["history"].items()]
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
        "owner": owner,
        "sessionId": session_id,
        "createdAt": SERVER_TIMESTAMP,
        firestore.UPDATED_AT: SERVER_TIMESTAMP,
        "turn": claim,
        "turns": 1,
        "history": {},
        firestore.EXPIRE_AT: expire_at,
    }


def require_free(session: Session | None) -> None:
    """Raise SessionBusy while a turn runs or waits in the session (H1)."""
    if session is None or session.expired or session.claim is None:
        return
    turn = record.load(session.claim.key)
    if turn is not None and turn.open:
        raise SessionBusy(session.claim.turn_id)


class Membership:
    """A turn's place in its session: the history it sees, and what it will leave there."""

    def __init__(
        self,
        turn_key: str,
        turn_id: str,
        session_key: str,
        position: int,
        entries: Sequence[Entry],
        *,
        session_hours: float,
    ) -> None:
        self._turn_key = turn_key
        self._turn_id = turn_id
        self._reference = reference(session_key)
        self._position = position
        self._entries = tuple(entries)
        self._session_hours = session_hours
        self._remembered: bytes | None = None

    @property
    def history(self) -> list[Any]:
        """The messages of the session's earlier turns, oldest first."""
        return history.messages_of(self._entries)

    @property
    def history_hash(self) -> str:
        """Names this history."""
        return history.hash_of(self._entries)

    @property
    def remembers(self) -> bool:
        """Whether the agent said what is to be remembered."""
        return self._remembered is not None

    def remember(self, messages: bytes) -> None:
        """Leave these when the turn ends: a JSON list, UTF-8."""
        self._remembered = messages

    def claim(
        self, session: Session | None, owner: str, session_id: str, batch: WriteBatch
    ) -> None:
        """Claim the session as it was read, or make it: fails when it changed since (H1)."""
        claim = {"key": self._turn_key, "id": self._turn_id}
        fields = new_fields(owner, session_id, claim, self._expiry())
        if session is None:
            batch.create(self._reference, fields)
            return
        if not session.expired:
            kept = ("turn", firestore.UPDATED_AT, firestore.EXPIRE_AT)
            fields = {**{name: fields[name] for name in kept}, "turns": self._position}
        unchanged = firestore.client().write_option(last_update_time=session.written_at)
        batch.update(self._reference, fields, option=unchanged)

    def leave(self, batch: WriteBatch, default: bytes | None) -> None:
        """Release the claim and add the turn's entry, if it leaves one (H2).

        `default` is what the turn leaves when its agent did not say. Fails when the session is
        gone.
        """
        from google.cloud.firestore import DELETE_FIELD

        fields = {**_released(), firestore.EXPIRE_AT: self._expiry()}
        messages = default if self._remembered is None else self._remembered
        if messages is not None:
            entry, dropped = history.fit(
                self._entries, Entry(self._turn_key, self._turn_id, self._position, messages)
            )
            if entry.dropped:
                logs.warning("the turn's messages are too large to keep", bytes=len(messages))
            fields[_entry(entry.key)] = entry.to_fields()
            fields.update({_entry(old.key): DELETE_FIELD for old in dropped})
        batch.update(self._reference, fields)

    def _expiry(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=self._session_hours)


def join(
    session: Session | None, owner: str, session_id: str, turn_id: str, *, session_hours: float
) -> Membership:
    """The place of a new turn in a session that was read as free, or is not there yet."""
    fresh = session is None or session.expired
    return Membership(
        record.turn_key(owner, turn_id),
        turn_id,
        session_key(owner, session_id),
        1 if session is None or fresh else session.turns + 1,
        () if session is None or fresh else session.entries,
        session_hours=session_hours,
    )


def rejoin(turn: Record, *, session_hours: float) -> Membership | None:
    """The place of a turn that was taken over; None when it belongs to no session.

    Raises Gone when its session is, StorageUnavailable, NewerSchema.
    """
    if turn.request.session_id is None:
        return None
    session = load(turn.owner, turn.request.session_id)
    if session is None or session.expired or session.claim is None or session.claim.key != turn.key:
        raise Gone("the turn's session was deleted or is past its retention")
    return Membership(
        turn.key,
        turn.turn_id,
        session.key,
        session.turns,
        session.entries,
        session_hours=session_hours,
    )


def told_before(turn: Record, last: int) -> str:
    """The text of a turn up to event `last`, as its journal has it.

    Without what follows a hole, should a part of it be missing. Raises StorageUnavailable.
    """
    state = Fold()
    more = True
    while more and state.cursor < last:
        page = journal.page(turn.key, state.cursor)
        for chunk in page.chunks:
            if not continues(state.cursor, chunk.after):
                return state.text
            if chunk.first <= last:
                fold(sse.decode(chunk.frames), state)
        more = page.more
    return state.text


def release(turn: Record) -> Callable[[WriteBatch], None]:
    """Stages the release of a turn that somebody else ends: it leaves nothing in its session.

    The commit fails when the session is deleted meanwhile. Raises StorageUnavailable, NewerSchema.
    """
    if turn.request.session_id is not None:
        session = load(turn.owner, turn.request.session_id)
        if session is not None and session.claim is not None and session.claim.key == turn.key:
            document = reference(session.key)
            return lambda batch: batch.update(document, _released())
    return lambda _batch: None


def _released() -> dict[str, Any]:
    from google.cloud.firestore import SERVER_TIMESTAMP

    return {"turn": None, firestore.UPDATED_AT: SERVER_TIMESTAMP}


def _entry(turn_key: str) -> str:
    """The path of a turn's entry in its session's document."""
    return f"history.`{turn_key}`"
