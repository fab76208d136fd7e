"""`turn_sessions` and `delete_turns` over HTTP: one's own, and nobody else's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions import firestore
from functions.endpoints.front import EXPOSED_HEADERS
from functions.turns import sessions as stored
from tests.conftest import PROJECT, Serve
from tests.endpoints.test_owners import ended
from tests.support.client import (
    cancel,
    decide,
    error_of,
    folded,
    headers,
    new_turn_id,
    resume,
    start,
)
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

pytestmark = pytest.mark.emulator

ORIGIN = "http://127.0.0.1:5000"
FAR = datetime.now(UTC) + timedelta(days=1)
PAST = datetime.now(UTC) - timedelta(days=1)


@pytest.fixture(scope="module")
def starter(firestore_emulator: str) -> Iterator[FunctionServer]:
    """A process of `start_turn`, for all of these tests."""
    with FunctionServer("start_turn", firestore_emulator, PROJECT, {}) as server:
        yield server


@pytest.fixture(scope="module")
def listing(firestore_emulator: str) -> Iterator[FunctionServer]:
    """A process of `turn_sessions`."""
    with FunctionServer("turn_sessions", firestore_emulator, PROJECT, {}) as server:
        yield server


@pytest.fixture(scope="module")
def deleter(firestore_emulator: str) -> Iterator[FunctionServer]:
    """A process of `delete_turns`."""
    with FunctionServer("delete_turns", firestore_emulator, PROJECT, {}) as server:
        yield server


@pytest.fixture
def uid() -> str:
    """A new user."""
    return f"user-{uuid.uuid4()}"


def ask(
    server: FunctionServer, uid: str | None, query: str = "", method: str = "GET"
) -> tuple[int, Any]:
    """Call `turn_sessions`: the status, and the answer or the error's code."""
    given = headers(new_turn_id(), uid=uid, Origin=ORIGIN)
    with RawStream(server.url + query, method, given) as stream:
        assert stream.headers["access-control-allow-origin"] == ORIGIN
        if stream.status != 200:
            return stream.status, error_of(stream)["code"]
        stream.read_to_end()
        return 200, json.loads(stream.body)


def delete(server: FunctionServer, uid: str | None, body: Any) -> tuple[int, Any]:
    """Call `delete_turns`: the status, and the answer or the error's code."""
    given = headers(new_turn_id(), uid=uid, Content_Type="application/json", Origin=ORIGIN)
    with RawStream(server.url, "POST", given, json.dumps(body).encode()) as stream:
        assert stream.headers["access-control-allow-origin"] == ORIGIN
        if stream.status != 200:
            return stream.status, error_of(stream)["code"]
        stream.read_to_end()
        return 200, json.loads(stream.body)


def test_sessions_are_listed_read_and_deleted(
    starter: FunctionServer, listing: FunctionServer, uid: str
) -> None:
    """The last used first; what each turn left; a running turn is named, and stopped."""
    for chat in ("first", "second"):
        ended(start(starter, new_turn_id(), [["say", chat]], uid=uid, session=chat))
    running, script = new_turn_id(), [["sleep", 100]]
    with start(starter, running, script, uid=uid, session="first") as stream:
        stream.read_until("ping")
        status, listed = ask(listing, uid)
        assert (status, listed["next"]) == (200, None)
        assert [one["sessionId"] for one in listed["sessions"]] == ["first", "second"]
        assert [one["turnId"] for one in listed["sessions"]] == [running, None]
        assert listed["sessions"][0]["turns"] == 2
        status, read = ask(listing, uid, "?id=first")
        assert {key: read[key] for key in read if key != "history"} == listed["sessions"][0]
        (entry,) = read["history"]
        assert entry["messages"][1] == {"role": "assistant", "content": "first"}
        assert entry["dropped"] is False
        assert ask(listing, uid, "?id=first", "DELETE") == (200, {"more": False})
        stream.read_to_end()
        ended_with = folded(stream).ended
        assert ended_with is not None
        assert ended_with.data == {"reason": "cancelled"}
    assert ask(listing, uid, "?id=first") == (404, "unknown_session")
    assert ask(listing, uid, "?id=first", "DELETE") == (404, "unknown_session")
    _, listed = ask(listing, uid)
    assert [one["sessionId"] for one in listed["sessions"]] == ["second"]


@pytest.mark.usefixtures("storage")
def test_a_long_list_comes_in_pages(listing: FunctionServer, uid: str) -> None:
    """Each session once, newest first, also those of one instant; expired ones never."""
    client = firestore.client()
    batch = client.batch()
    made = stored.PAGE_SESSIONS * 2 + 3
    for number in range(made):
        fields = stored.new_fields(f"uid:{uid}", f"chat-{number}", {"key": "k", "id": "t"}, FAR)
        if number == 0:
            fields[firestore.EXPIRE_AT] = PAST
        name = stored.session_key(f"uid:{uid}", f"chat-{number}")
        batch.create(stored.reference(name), fields)  # all at one instant
    batch.commit()
    seen: list[str] = []
    query, pages = "", 0
    while True:
        _, page = ask(listing, uid, query)
        seen += [one["sessionId"] for one in page["sessions"]]
        pages += 1
        if page["next"] is None:
            break
        query = f"?after={page['next']}"
    assert pages == 3
    assert sorted(seen) == sorted(f"chat-{number}" for number in range(1, made))
    times = [(one["updatedAt"]) for one in page["sessions"]]
    assert times == sorted(times, reverse=True)
    assert ask(listing, uid, "?id=chat-0") == (404, "unknown_session")


@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("GET", "?id="),
        ("GET", "?id=a/b"),
        ("GET", "?id=a&id=b"),
        ("GET", "?after=1-x"),
        ("GET", "?after=999999999999999999-" + "a" * 40),
        ("GET", "?after="),
        ("GET", "?name=a"),
        ("GET", "?id=a&after=1-" + "a" * 40),
        ("DELETE", ""),
        ("DELETE", "?after=1-" + "a" * 40),
        ("DELETE", "?id=%ff"),
    ],
)
def test_a_bad_query_is_refused(listing: FunctionServer, method: str, query: str) -> None:
    """Before a token is used up."""
    assert ask(listing, "ada", query, method) == (400, "bad_query")


def test_who_is_not_signed_in_has_no_sessions(
    listing: FunctionServer, deleter: FunctionServer
) -> None:
    """Nor an "all" to delete."""
    assert ask(listing, None) == (401, "sign_in_required")
    assert ask(listing, None, "?id=a", "DELETE") == (401, "sign_in_required")
    assert delete(deleter, None, {"all": True}) == (401, "sign_in_required")


def test_a_page_may_delete(listing: FunctionServer) -> None:
    """The browser is told so before it asks."""
    given = {"Origin": ORIGIN, "Access-Control-Request-Method": "DELETE"}
    with RawStream(listing.url, "OPTIONS", given) as stream:
        assert stream.status == 204
        assert stream.headers["access-control-allow-methods"] == "GET, DELETE"
        assert "Authorization" in stream.headers["access-control-allow-headers"]
        assert stream.headers["access-control-expose-headers"] == EXPOSED_HEADERS


@pytest.mark.parametrize(
    "body",
    [{}, {"all": False}, {"all": 1}, {"turnId": "x"}, {"turnId": 1}, [], None,
     {"turnId": "t" * 20, "all": True}, {"all": True, "more": 1}],
)  # fmt: skip
def test_a_deletion_says_exactly_what(deleter: FunctionServer, body: Any) -> None:
    """A typo must not delete everything, nor nothing."""
    assert delete(deleter, "ada", body) == (400, "bad_body")


def test_a_deleted_turn_is_gone_for_every_call(
    serve: Serve, starter: FunctionServer, deleter: FunctionServer, uid: str
) -> None:
    """Whoever follows it loses it, too."""
    turn_id, script = new_turn_id(), [["count", 1, 1200, 20]]
    resumer = serve("resume_turn")
    with start(starter, turn_id, script, uid=uid) as stream:
        stream.read_until(5)
        with resume(resumer, turn_id, uid=uid) as follower:
            follower.read_until(5)
            expected = {"turns": 1, "sessions": 0, "more": False}
            assert delete(deleter, uid, {"turnId": turn_id}) == (200, expected)
            follower.read_to_end()
            stream.read_to_end()
    with start(starter, turn_id, script, uid=uid) as again:
        assert (again.status, error_of(again)["code"]) == (410, "gone")
    with start(starter, turn_id, [["say", "other"]], uid=uid) as other:
        assert (other.status, error_of(other)["code"]) == (410, "gone")
    with resume(resumer, turn_id, 3, uid=uid) as again:
        assert (again.status, error_of(again)["code"]) == (410, "gone")
    with decide(serve("run_tool_step"), turn_id, 1, "deny", uid=uid) as again:
        assert (again.status, error_of(again)["code"]) == (410, "gone")
    with pytest.raises(AssertionError, match="410 GONE"):
        cancel(serve("cancel_turn"), turn_id, uid=uid)
    assert delete(deleter, uid, {"turnId": turn_id})[0] == 200


def test_a_turn_of_nobody_is_deleted_by_its_id(
    serve: Serve, starter: FunctionServer, deleter: FunctionServer
) -> None:
    """Whoever knows it owns it."""
    turn_id = new_turn_id()
    ended(start(starter, turn_id, [["say", "x"]]))
    assert delete(deleter, None, {"turnId": turn_id})[0] == 200
    with resume(serve("resume_turn"), turn_id) as again:
        assert error_of(again)["code"] == "gone"


def test_nobody_deletes_or_reads_what_is_another_users(
    serve: Serve,
    starter: FunctionServer,
    listing: FunctionServer,
    deleter: FunctionServer,
    uid: str,
) -> None:
    """Every call gets the answer of what is not there, and changes nothing."""
    turn_id, eve = new_turn_id(), f"eve-{uid}"
    ended(start(starter, turn_id, [["say", "mine"]], uid=uid, session="chat"))
    assert ask(listing, eve)[1]["sessions"] == []
    assert ask(listing, eve, "?id=chat") == (404, "unknown_session")
    assert ask(listing, eve, "?id=chat", "DELETE") == (404, "unknown_session")
    assert delete(deleter, eve, {"turnId": turn_id}) == (404, "unknown_turn")
    nothing = {"turns": 0, "sessions": 0, "more": False}
    assert delete(deleter, eve, {"all": True}) == (200, nothing)
    assert ended(resume(serve("resume_turn"), turn_id, uid=uid)) == "mine"
    everything = {"turns": 1, "sessions": 1, "more": False}
    assert delete(deleter, uid, {"all": True}) == (200, everything)
    assert ask(listing, uid)[1]["sessions"] == []
