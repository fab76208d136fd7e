"""`turn_sessions`: GET lists one's sessions, or reads one; DELETE deletes one. All need a user."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Request, Response, jsonify

from functions.endpoints import front, requests
from functions.endpoints.service import Service
from functions.errors import BadQuery, UnknownSession
from functions.identity.caller import identify
from functions.turns import deletion, sessions
from functions.turns.sessions import Session

_CURSOR = re.compile(r"([0-9]{1,17})-([0-9a-f]{40})")
"""Microseconds since 1970, up to the year 5138, and a session's key."""
_EPOCH = datetime.fromtimestamp(0, UTC)


def serve_sessions(request: Request, service: Service) -> Response:
    """List (`?after=` goes on), read (`?id=`) or delete (`?id=`) the caller's sessions."""

    def handle(request: Request) -> Response:
        query = requests.query(request, "id", "after")
        session_id = requests.session_id(query["id"]) if "id" in query else None
        after = _position(query["after"]) if "after" in query else None
        if after is not None and session_id is not None:
            raise BadQuery("the query may have id or after, not both")
        deleting = request.method == "DELETE"
        if deleting and session_id is None:
            raise BadQuery("the query must have the id of the session to delete")
        owner = identify(request.headers, service.settings, needs_user=True).owner()
        if session_id is None:
            answer = _list(owner, after)
        elif deleting:
            answer = {"more": deletion.delete_session(owner, session_id).more}
        else:
            answer = _read(owner, session_id)
        response = jsonify(answer)
        response.headers["Cache-Control"] = "no-store"
        return response

    return front.serve(request, service.settings, methods=("GET", "DELETE"), handler=handle)


def _list(owner: str, after: tuple[datetime, str] | None) -> dict[str, Any]:
    page = sessions.page(owner, after)
    more = len(page) == sessions.PAGE_SESSIONS
    listed = [_summary(session) for session in page if not session.expired]
    return {"sessions": listed, "next": _cursor(page[-1]) if more else None}


def _read(owner: str, session_id: str) -> dict[str, Any]:
    session = sessions.load(owner, session_id)
    if session is None or session.expired:
        raise UnknownSession("there is no such session")
    history = [
        {"turnId": one.turn_id, "messages": json.loads(one.messages), "dropped": one.dropped}
        for one in session.entries
    ]
    return {**_summary(session), "history": history}


def _summary(session: Session) -> dict[str, Any]:
    return {
        "sessionId": session.session_id,
        "createdAt": _rfc3339(session.created_at),
        "updatedAt": _rfc3339(session.updated_at),
        "expiresAt": _rfc3339(session.expire_at),
        "turns": session.turns,
        "turnId": None if session.claim is None else session.claim.turn_id,
    }


def _cursor(session: Session) -> str:
    """Names a place in the list, to go on from."""
    return f"{(session.updated_at - _EPOCH) // timedelta(microseconds=1)}-{session.key}"


def _position(cursor: str) -> tuple[datetime, str]:
    """The place that `_cursor` named. Raises BadQuery."""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise BadQuery("after must be the `next` of an earlier answer")
    return _EPOCH + timedelta(microseconds=int(match[1])), match[2]


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
