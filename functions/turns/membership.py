"""A turn's place in its session: what it sees of the turns before it, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from functions import firestore, logs
from functions.errors import Gone
from functions.turns import history, journal, record, sessions
from functions.turns.history import Entry, Told
from functions.turns.numbering import continues
from functions.turns.record import Record
from functions.turns.sessions import Session
from functions.wire import sse

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch


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
        self._reference = sessions.reference(session_key)
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
        fields = sessions.new_fields(owner, session_id, claim, self._expiry())
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
            fields[sessions.entry_path(entry.key)] = entry.to_fields()
            fields.update({sessions.entry_path(old.key): DELETE_FIELD for old in dropped})
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
        sessions.session_key(owner, session_id),
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
    session = sessions.load(turn.owner, turn.request.session_id)
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
    """The text of a turn up to event `last`, or the start of it, as its journal has it.

    Without what follows a hole, should a part of it be missing. Raises StorageUnavailable.
    """
    told = Told()
    cursor, more = 0, True
    while more and cursor < last:
        page = journal.page(turn.key, cursor)
        for chunk in page.chunks:
            if not continues(cursor, chunk.after) or chunk.first > last:
                return told.text
            for frame in sse.decode(chunk.frames):
                if frame.type == "token":
                    told.add(frame.data)
                elif frame.type == "rewind":
                    told.cut(frame.data["length"])
            cursor = chunk.last
        more = page.more
    return told.text


def release(turn: Record) -> Callable[[WriteBatch], None]:
    """Stages the release of a turn that somebody else ends: it leaves nothing in its session.

    The commit fails when the session changes meanwhile: another turn may claim it once this one is
    past its retention. Raises StorageUnavailable, NewerSchema.
    """
    if turn.request.session_id is not None:
        session = sessions.load(turn.owner, turn.request.session_id)
        if session is not None and session.claim is not None and session.claim.key == turn.key:
            document = sessions.reference(session.key)
            unchanged = firestore.client().write_option(last_update_time=session.written_at)
            return lambda batch: batch.update(document, _released(), option=unchanged)
    return lambda _batch: None


def _released() -> dict[str, Any]:
    from google.cloud.firestore import SERVER_TIMESTAMP

    return {"turn": None, firestore.UPDATED_AT: SERVER_TIMESTAMP}
