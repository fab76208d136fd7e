"""Two users, two apps, and nobody: every call on somebody else's turn, as on one that never was."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from functions import firestore
from functions.turns import record
from tests.conftest import PROJECT, Serve
from tests.identity.conftest import Answer, asked, call, warmed
from tests.support.client import app_check, id_token, new_turn_id
from tests.support.server import FunctionServer

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

ON_A_TURN = ("resume_turn", "run_tool_step", "cancel_turn", "delete_turns")


@dataclass(frozen=True)
class Who:
    """A caller."""

    app: str
    uid: str | None

    def owns(self, turn_of: Who) -> bool:
        """Whether a turn of that caller is this one's."""
        if turn_of.uid is None:
            return self == turn_of
        return self.uid == turn_of.uid


CALLERS = [Who(app, uid) for app in ("1:2:web:a", "1:2:ios:b") for uid in ("ada", "bob", None)]
OWNERS = [Who("1:2:web:a", "ada"), Who("1:2:web:a", None)]
STRANGERS = [(of, who) for of, who in itertools.product(OWNERS, CALLERS) if not who.owns(of)]


def name(pair: object) -> str:
    """A test's name."""
    if isinstance(pair, Who):
        return f"{pair.uid or 'nobody'}-{pair.app[4:7]}"
    return str(pair)


@pytest.fixture(scope="module")
def servers(firestore_emulator: str) -> Iterator[dict[str, FunctionServer]]:
    """A process of each function."""
    made: dict[str, FunctionServer] = {}
    with ExitStack() as stack:
        for target in ("start_turn", "turn_sessions", *ON_A_TURN):
            server = FunctionServer(target, firestore_emulator, PROJECT, {})
            made[target] = stack.enter_context(server)

        def first(server: FunctionServer) -> Answer:
            (function,) = (name for name, one in made.items() if one is server)
            if function == "turn_sessions":
                return of_session(made, "GET", Who("1:2:web:a", "first"), "")
            return ask(made, function, Who("1:2:web:a", "first"), new_turn_id(), prompt="[]")

        yield {name: warmed(server, first) for name, server in made.items()}


def ask(
    servers: dict[str, FunctionServer], function: str, who: Who, turn_id: str, **start: object
) -> Answer:
    """Call a function as somebody; `start` is the body of a start."""
    bodies: dict[str, object] = {
        "start_turn": start,
        "run_tool_step": {"step": 1, "decision": "approve"},
        "delete_turns": {"turnId": turn_id},
    }
    return asked(
        lambda: call(
            servers[function],
            app=app_check(who.app),
            bearer=None if who.uid is None else id_token(who.uid),
            turn_id=turn_id,
            body=json.dumps(bodies[function]).encode() if function in bodies else None,
            method="GET" if function == "resume_turn" else "POST",
        )
    )


def of_session(
    servers: dict[str, FunctionServer], method: str, who: Who, session_id: str
) -> Answer:
    """Read or delete a session as somebody."""
    return asked(
        lambda: call(
            servers["turn_sessions"],
            app=app_check(who.app),
            bearer=None if who.uid is None else id_token(who.uid),
            method=method,
            query=f"?id={session_id}" if session_id else "",
        )
    )


def waiting_turn(servers: dict[str, FunctionServer], owner: Who, path: Path) -> str:
    """A turn that waits for a decision."""
    turn_id = new_turn_id()
    script: Sequence[object] = [["say", "ours"], ["tools", ["refund", {"path": str(path)}]]]
    started = ask(servers, "start_turn", owner, turn_id, prompt=json.dumps(script))
    assert b"tool_pending" in started.body
    return turn_id


def stored(owner: Who, turn_id: str) -> tuple[object, ...]:
    """All that is stored of a turn: its lease, when it was last written, its journal."""
    said = f"uid:{owner.uid}" if owner.uid is not None else f"app:{owner.app}:{turn_id}"
    key = record.turn_key(said, turn_id)
    turn = record.load(key)
    assert turn is not None
    events = record.reference(key).collection(firestore.EVENTS).order_by("index").stream()
    chunks = tuple(chunk.get("frames") for chunk in events)
    return turn.updated_at, turn.holder, turn.status, chunks


@pytest.mark.parametrize(("owner", "who"), STRANGERS, ids=name)
def test_a_strangers_call_is_answered_as_of_an_unknown_turn_and_changes_nothing(
    servers: dict[str, FunctionServer], tmp_path: Path, owner: Who, who: Who
) -> None:
    """Byte for byte, but for the request's own id; no event, no lease, no decision."""
    turn_id = waiting_turn(servers, owner, tmp_path / "effects")
    before = stored(owner, turn_id)
    for function in ON_A_TURN:
        theirs = ask(servers, function, who, turn_id)
        unknown = ask(servers, function, who, new_turn_id())
        if function != "delete_turns":  # which is idempotent: there is nothing to delete
            assert theirs.outcome == (404, "unknown_turn")
        assert plain(theirs) == plain(unknown)
    own = ask(servers, "start_turn", who, turn_id, prompt=json.dumps([["say", "theirs"]]))
    assert (own.status, b"ours" in own.body) == (200, False)
    assert stored(owner, turn_id) == before
    assert not (tmp_path / "effects").exists()


def plain(answer: Answer) -> tuple[object, ...]:
    """What a caller can tell answers apart by."""
    body = json.loads(answer.body)
    body.get("error", {}).pop("correlationId", None)
    headers = {k: v for k, v in answer.headers.items() if k not in {"date", "x-correlation-id"}}
    return answer.status, headers, body


@pytest.mark.parametrize("who", [who for who in CALLERS if who.uid != "ada"], ids=name)
def test_a_users_session_is_unknown_to_everybody_else(
    servers: dict[str, FunctionServer], who: Who
) -> None:
    """It cannot be read, deleted or listed, and a turn of theirs under its name is in their own."""
    ada, session_id = Who("1:2:web:a", "ada"), uuid.uuid4().hex
    fields = {"prompt": json.dumps([["say", "x"]]), "sessionId": session_id}
    assert ask(servers, "start_turn", ada, new_turn_id(), **fields).status == 200
    before = of_session(servers, "GET", ada, session_id)
    for method in ("GET", "DELETE"):
        theirs = of_session(servers, method, who, session_id)
        assert plain(theirs) == plain(of_session(servers, method, who, uuid.uuid4().hex))
    assert session_id.encode() not in of_session(servers, "GET", who, "").body
    own = ask(servers, "start_turn", who, new_turn_id(), **fields)
    assert own.status == (401 if who.uid is None else 200)
    after = of_session(servers, "GET", ada, session_id)
    assert before.status == 200
    assert before.body == after.body


def test_a_user_goes_on_in_another_app(servers: dict[str, FunctionServer], tmp_path: Path) -> None:
    """The turn is the user's: asked on the web, approved on the phone."""
    web, phone = Who("1:2:web:a", "ada"), Who("1:2:ios:b", "ada")
    turn_id = waiting_turn(servers, web, tmp_path / "effects")
    assert ask(servers, "run_tool_step", phone, turn_id).status == 200
    assert len((tmp_path / "effects").read_text().splitlines()) == 1
    assert ask(servers, "resume_turn", phone, turn_id).body.count(b"event: done") == 1


@pytest.mark.parametrize(("query", "exception"), [("", "SecretError"), ("?exit=1", "SystemExit")])
def test_an_unhandled_exception_is_500_as_json_and_its_id_finds_the_log_line(
    serve: Serve, query: str, exception: str
) -> None:
    """Nothing else of it: no text, no type, no stack to the client; no text to the log. One that
    would end a process does not end this one, with the streams of others.
    """
    server = serve("broken")
    answer = call(server, query=query)
    assert answer.outcome == (500, "internal")
    error = json.loads(answer.body)["error"]
    assert error["message"] == "the request failed on the server"
    assert exception.encode() not in answer.body
    (line,) = [one for one in server.log_lines() if one["severity"] == "ERROR"]
    assert line["correlationId"] == error["correlationId"] == answer.headers["x-correlation-id"]
    assert line["exception"] == exception
    assert "sk-secret" not in server.output()
