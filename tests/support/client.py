"""Calls of a client: a fresh App Check token each, a turn id, a cursor."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from dev import token
from dev.project import LOCAL_PROJECT
from functions.turns import record
from functions.wire import sse
from functions.wire.fold import Fold, fold
from tests.support.server import FunctionServer
from tests.support.sse import RawStream


def app_check(app: str = token.APP, *, project: str = LOCAL_PROJECT, ttl: int = 300) -> str:
    """A fresh token of the local App Check stand-in."""
    return token.encode(token.claims(project, app, ttl, time.time()))


def id_token(uid: str, *, project: str = LOCAL_PROJECT, ttl: int = 3600) -> str:
    """An ID token of the Auth emulator's."""
    return token.encode(token.id_claims(project, uid, ttl, time.time()))


def new_turn_id() -> str:
    """What a client chooses: a UUID."""
    return str(uuid.uuid4())


def key_of(turn_id: str, *, uid: str | None = None) -> str:
    """The key of a turn that a client started so, as that user if one is named."""
    owner = f"app:{token.APP}:{turn_id}" if uid is None else f"uid:{uid}"
    return record.turn_key(owner, turn_id)


def headers(
    turn_id: str, cursor: int | None = None, *, uid: str | None = None, **more: str
) -> dict[str, str]:
    """The headers of one attempt, of a signed-in user if one is named."""
    given = {"X-Firebase-AppCheck": app_check(), "X-Stream-Turn-Id": turn_id}
    if uid is not None:
        given["Authorization"] = f"Bearer {id_token(uid)}"
    if cursor is not None:
        given["Last-Event-ID"] = str(cursor)
    return {**given, **{name.replace("_", "-"): value for name, value in more.items()}}


def start(
    server: FunctionServer | str,
    turn_id: str,
    script: Sequence[object],
    cursor: int | None = None,
    *,
    uid: str | None = None,
    session: str | None = None,
) -> RawStream:
    """POST a script to `start_turn`."""
    asked = {"prompt": json.dumps(script)}
    body = json.dumps(asked if session is None else {**asked, "sessionId": session}).encode()
    url = server if isinstance(server, str) else server.url
    given = headers(turn_id, cursor, uid=uid, Content_Type="application/json")
    return RawStream(url, "POST", given, body)


def resume(
    server: FunctionServer | str,
    turn_id: str,
    cursor: int | None = None,
    method: str = "GET",
    *,
    uid: str | None = None,
) -> RawStream:
    """Resume a turn from a cursor on."""
    url = server if isinstance(server, str) else server.url
    return RawStream(url, method, headers(turn_id, cursor, uid=uid))


def asked_again(ask: Callable[[], RawStream]) -> RawStream:
    """The answer to what `ask` sends, which it sends again as long as a busy machine's Firestore is
    too late for the function: 503, as to any client.
    """
    while (stream := ask()).status == 503:
        stream.close()
    return stream


def folded(*streams: RawStream, into: Fold | None = None) -> Fold:
    """What a client that read these streams one after the other holds."""
    state = into or Fold()
    for stream in streams:
        whole = stream.body[: len(stream.body) - len(stream.rest)]
        fold(sse.decode(whole.replace(sse.PING, b"")), state)
    return state


def error_of(stream: RawStream) -> dict[str, Any]:
    """The error of a JSON answer; AssertionError if its form is another."""
    assert stream.headers["content-type"] == "application/json", stream.headers
    stream.read_to_end()
    body = json.loads(stream.body)
    assert set(body) == {"error"}
    more = {"turnId"} if body["error"]["code"] == "session_busy" else set()
    assert set(body["error"]) == {"code", "message", "correlationId"} | more
    return dict(body["error"])


def decide(
    server: FunctionServer | str,
    turn_id: str,
    step: int,
    decision: str,
    cursor: int | None = None,
    *,
    uid: str | None = None,
) -> RawStream:
    """Post a decision to `run_tool_step`."""
    url = server if isinstance(server, str) else server.url
    body = json.dumps({"step": step, "decision": decision}).encode()
    given = headers(turn_id, cursor, uid=uid, Content_Type="application/json")
    return RawStream(url, "POST", given, body)


def cancel(server: FunctionServer | str, turn_id: str, *, uid: str | None = None) -> str:
    """Stop a turn; its status after that. AssertionError for any answer but 200."""
    url = server if isinstance(server, str) else server.url
    with RawStream(url, "POST", headers(turn_id, uid=uid)) as stream:
        assert stream.status == 200, stream.raw
        stream.read_to_end()
        return str(json.loads(stream.body)["status"])
