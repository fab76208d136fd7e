"""Admitting a caller to a turn: what a start or a resume comes to, in every state of the turn."""

from __future__ import annotations

from dataclasses import dataclass

from functions import logs
from functions.errors import (
    AgentFailed,
    BadCursor,
    Gone,
    SignInRequired,
    TurnConflict,
    UnknownTurn,
)
from functions.settings import Settings
from functions.turns import creation, journal, record, stream
from functions.turns.journal import Page
from functions.turns.numbering import cursor_possible
from functions.turns.owners import Owners
from functions.turns.record import Record, Request
from functions.turns.stream import Stream

FIRST_EVENT_SECONDS = 0.2
"""A new turn's headers wait so long for an agent that fails before its first event."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The caller has the whole turn already: there is nothing to stream."""


Admitted = Stream | AtEnd


def start(
    owner: str,
    turn_id: str,
    request: Request,
    cursor: int,
    *,
    owners: Owners,
    settings: Settings,
) -> Admitted:
    """Create the turn, or attach to it when the same request was made under this id before.

    Raises TurnConflict for another request, SignInRequired for a session of nobody, SessionBusy
    while another turn has the session, TooManyTurns, TooManyRunningTurns, Gone past the retention
    (a cursor on a turn that is not there says so too: running it again would repeat its effects),
    AgentFailed, BadCursor, StorageUnavailable, NewerSchema.
    """
    if request.session_id is not None and not record.is_user(owner):
        raise SignInRequired("a session needs a signed-in user: send Authorization: Bearer")
    key = record.turn_key(owner, turn_id)
    logs.bind(turn=key)
    if cursor == 0:
        owners.require_room()
        taken = creation.create(
            owner, turn_id, request, agent_version=owners.agent.version, settings=settings
        )
        if taken is not None:
            logs.bind(run=taken.turn.run_id)
            logs.info("turn started")
            writer = owners.own(taken)
            failed = stream.first_failure(writer, within_seconds=FIRST_EVENT_SECONDS)
            if failed is not None:
                raise AgentFailed(
                    failed.data["message"], correlation_id=failed.data["correlationId"]
                )
            return Stream(key, 0, Page([], more=False), owners, settings)
    turn = record.load(key)
    if turn is None:
        raise Gone("the turn this cursor belongs to is past its retention")
    if not turn.gone and turn.request_hash != request.hash:
        raise TurnConflict("this turn id was used for another request")
    return _attach(turn, cursor, owners, settings)


def resume(
    owner: str, turn_id: str, cursor: int, *, owners: Owners, settings: Settings
) -> Admitted:
    """Attach to a turn that exists. Raises UnknownTurn, and as `start` does."""
    key = record.turn_key(owner, turn_id)
    logs.bind(turn=key)
    turn = record.load(key)
    if turn is None:
        raise UnknownTurn("there is no such turn")
    return _attach(turn, cursor, owners, settings)


def _attach(turn: Record, cursor: int, owners: Owners, settings: Settings) -> Admitted:
    if turn.gone:
        raise Gone("the turn is past its retention, or was deleted")
    logs.bind(run=turn.run_id)
    logs.info("stream attached", status=turn.status, cursor=cursor)
    page = read_from(turn, cursor)
    return AtEnd() if page is None else Stream(turn.key, cursor, page, owners, settings)


def read_from(turn: Record, cursor: int) -> Page | None:
    """The first page after a caller's cursor; None when the turn ends there.

    Raises BadCursor, Gone, StorageUnavailable.
    """
    page = journal.page(turn.key, cursor)
    if page.chunks:
        stream.require_continuous(cursor, page)
        return page
    tail = journal.tail(turn.key)
    last = 0 if tail is None else tail.last
    ended = tail is not None and tail.terminal
    # An owner that parks commits all that it has shown: of a turn that waits, nothing is above.
    whole = ended or turn.finished or turn.status == record.WAITING
    if not cursor_possible(cursor, last, turn.window, finished=whole):
        raise BadCursor(f"Last-Event-ID {cursor} is above every id of this turn")
    if turn.finished and not ended:
        raise Gone("the end of the turn is past its retention")
    return None if ended and cursor == last else page
