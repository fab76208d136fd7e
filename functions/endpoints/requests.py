"""Reading requests: the turn's id, the cursor, the body. Cheap, before anything is used up."""

from __future__ import annotations

import json
import re
from typing import Any

from flask import Request

from functions.errors import (
    BadBody,
    BadCursor,
    BadQuery,
    BadTurnId,
    BodyTooLarge,
    UnsupportedMediaType,
)
from functions.turns.numbering import parse_cursor
from functions.turns.record import Request as TurnRequest
from functions.turns.steps import APPROVE, DENY
from functions.wire.text import has_surrogates

MAX_BODY_BYTES = 256 * 1024
MAX_PROMPT_CHARS = 50_000
"""With room for the rest of the turn's document, which Firestore bounds at 1 MiB."""

MAX_STEP = 999_999

_TURN_ID = re.compile(r"[A-Za-z0-9_-]{20,64}")
_TURN_KEY = re.compile(r"[0-9a-f]{40}")
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def turn_id(request: Request) -> str:
    """`X-Stream-Turn-Id`. Raises BadTurnId."""
    value = request.headers.get("X-Stream-Turn-Id", "")
    if not _TURN_ID.fullmatch(value):
        raise BadTurnId("X-Stream-Turn-Id must be 20 to 64 of A-Z a-z 0-9 _ -")
    return value


def cursor(request: Request) -> int:
    """`Last-Event-ID`, 0 when absent or empty. Raises BadCursor."""
    value = parse_cursor(request.headers.get("Last-Event-ID", ""))
    if value is None:
        raise BadCursor(
            "Last-Event-ID must be the digits of an event id, without leading zeros, or empty"
        )
    return value


def query(request: Request, *names: str) -> dict[str, str]:
    """The URL's query, with these names and no other, each at most once. Raises BadQuery."""
    given = request.args.to_dict(flat=False)
    if not set(given) <= set(names) or any(len(values) > 1 for values in given.values()):
        raise BadQuery(f"the query may have {' and '.join(names)}, each once, and nothing else")
    return {name: values[0] for name, values in given.items()}


def session_id(value: str) -> str:
    """A session's id as it stands in a query. Raises BadQuery."""
    if not _SESSION_ID.fullmatch(value):
        raise BadQuery("id must be 1 to 64 of A-Z a-z 0-9 _ -")
    return value


def deletion(request: Request) -> str | None:
    """A deletion's body: `{"turnId": string}`, or None for `{"all": true}`.

    Raises UnsupportedMediaType, BodyTooLarge, BadBody.
    """
    body = _json_object(request)
    if set(body) == {"all"} and body["all"] is True:
        return None
    named = body.get("turnId")
    if set(body) == {"turnId"} and isinstance(named, str) and _TURN_ID.fullmatch(named):
        return named
    raise BadBody(
        'the body must be {"turnId": string}, 20 to 64 of A-Z a-z 0-9 _ -, or {"all": true}'
    )


def turn_request(request: Request) -> TurnRequest:
    """A start's body: `{"prompt": string, "sessionId"?: string}`.

    Raises UnsupportedMediaType, BodyTooLarge, BadBody.
    """
    body = _json_object(request)
    unknown = set(body) - {"prompt", "sessionId"}
    if unknown:
        raise BadBody("the body has fields besides prompt and sessionId")
    prompt, session = body.get("prompt"), body.get("sessionId")
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadBody("prompt must be a string that is not blank")
    if len(prompt) > MAX_PROMPT_CHARS:
        raise BodyTooLarge(f"prompt may have at most {MAX_PROMPT_CHARS} characters")
    if has_surrogates(prompt):
        raise BadBody("prompt must be valid Unicode: it has a lone surrogate")
    if "sessionId" in body and (not isinstance(session, str) or not _SESSION_ID.fullmatch(session)):
        raise BadBody("sessionId must be 1 to 64 of A-Z a-z 0-9 _ -")
    return TurnRequest(prompt, session)


def step_decision(request: Request) -> tuple[int, str]:
    """A decision's body: `{"step": integer, "decision": "approve" | "deny"}`.

    Raises UnsupportedMediaType, BodyTooLarge, BadBody.
    """
    body = _json_object(request)
    if set(body) != {"step", "decision"}:
        raise BadBody("the body must have step and decision, and nothing else")
    step, decision = body["step"], body["decision"]
    if isinstance(step, bool) or not isinstance(step, int) or not 0 < step <= MAX_STEP:
        raise BadBody(f"step must be a whole number from 1 to {MAX_STEP}")
    if not isinstance(decision, str) or decision not in {APPROVE, DENY}:
        raise BadBody("decision must be approve or deny")
    return step, decision


def task(request: Request) -> tuple[str, int]:
    """A task's body: `{"data": {"turn": key, "due": seconds since 1970}}`. Raises BadBody, and
    what reading a body raises.
    """
    data = _json_object(request).get("data")
    key = data.get("turn") if isinstance(data, dict) else None
    due = data.get("due") if isinstance(data, dict) else None
    if not isinstance(key, str) or not _TURN_KEY.fullmatch(key):
        raise BadBody("data.turn must be the key of a turn")
    if isinstance(due, bool) or not isinstance(due, int) or not 0 < due < 2**33:
        raise BadBody("data.due must be a time in seconds since 1970")
    return key, due


def _json_object(request: Request) -> dict[str, Any]:
    if request.mimetype != "application/json":
        raise UnsupportedMediaType("Content-Type must be application/json")
    # Read one byte more than allowed: a body without a length is bounded all the same.
    try:
        data = request.stream.read(MAX_BODY_BYTES + 1)
    except Exception:  # noqa: BLE001 - the HTTP server's: cut off in the middle, or no proper chunks
        raise BadBody("the body ended early, or was not sent as it was declared") from None
    if len(data) > MAX_BODY_BYTES:
        raise BodyTooLarge(f"the body may have at most {MAX_BODY_BYTES} bytes")
    try:
        body = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise BadBody("the body must be JSON in UTF-8") from None
    if not isinstance(body, dict):
        raise BadBody("the body must be a JSON object")
    return body
