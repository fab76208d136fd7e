"""What one user's turns have to do with each other, over HTTP: sessions and limits."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import Serve
from tests.support.client import cancel, decide, error_of, folded, new_turn_id, resume, start
from tests.support.firestore_proxy import FirestoreProxy, Hold, HoldAnswer, touches
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

SESSION = touches(r"agent_sessions/[^/]+")


@pytest.fixture
def uid() -> str:
    """A new user."""
    return f"user-{uuid.uuid4()}"


def ended(stream: RawStream) -> str:
    """The text of a turn that ends as it should."""
    with stream:
        stream.read_to_end()
        state = folded(stream)
        assert state.ended is not None, stream.raw
        assert state.ended.type == "done"
        return state.text


def history(server: Any, uid: str, session: str) -> list[Any]:
    """What an agent sees of the session."""
    text = ended(start(server, new_turn_id(), [["history"]], uid=uid, session=session))
    return list(json.loads(text))


def test_a_second_tab_is_told_which_turn_runs_and_attaches(
    serve: Serve, uid: str, gate: Gate
) -> None:
    """The tabs reach different containers; both see the same text."""
    first, second, resumer = serve("start_turn"), serve("start_turn"), serve("resume_turn")
    turn_id = new_turn_id()
    script = [["count", 1, 10, 0], gate.action, ["count", 11, 120, 0]]
    with start(first, turn_id, script, uid=uid, session="chat") as stream:
        stream.read_until(3)
        with start(second, new_turn_id(), [["say", "x"]], uid=uid, session="chat") as refused:
            assert refused.status == 409
            error = error_of(refused)
            assert (error["code"], error["turnId"]) == ("session_busy", turn_id)
        attached = resume(resumer, error["turnId"], uid=uid)
        again = start(second, turn_id, script, uid=uid, session="chat")
        for follower in (attached, again):
            follower.read_until(3)
        gate.open()
        text = "".join(f"{n} " for n in range(1, 121))
        assert ended(stream) == ended(attached) == ended(again) == text
    assert [one["role"] for one in history(second, uid, "chat")] == ["user", "assistant"]


def test_a_session_is_free_after_its_turn_was_killed_and_finished_by_another(
    serve: Serve, uid: str, gate: Gate
) -> None:
    """While the turn can still be taken over it has the session; its text is all remembered."""
    owner, other = serve("start_turn"), serve("start_turn")
    turn_id, kept = new_turn_id(), ["model", "m", [["say", "kept "]], 1]
    script = [kept, ["count", 1, 15, 0], gate.action, ["count", 16, 30, 0]]
    with start(owner, turn_id, script, uid=uid, session="chat") as stream:
        stream.read_until(10)
        owner.kill()
    with start(other, new_turn_id(), [["say", "x"]], uid=uid, session="chat") as refused:
        assert error_of(refused)["turnId"] == turn_id
    lapse_turn(turn_id)
    gate.open()
    text = ended(resume(serve("resume_turn"), turn_id, uid=uid))
    assert history(other, uid, "chat")[1] == {"role": "assistant", "content": text}


@pytest.mark.parametrize("fault", [Hold, HoldAnswer])
def test_a_container_killed_at_its_turns_end_leaves_one_entry(
    serve: Serve, firestore_proxy: FirestoreProxy, uid: str, fault: type[Hold | HoldAnswer]
) -> None:
    """Killed before the terminal commit is applied, or after it and before its answer came."""
    never = threading.Event()
    rule = firestore_proxy.inject("Commit", fault(never), when=SESSION, times=1, after=1)
    owner, other = serve("start_turn", storage=firestore_proxy.address), serve("start_turn")
    turn_id = new_turn_id()
    with start(owner, turn_id, [["say", "x"], ["remember", ["once"]]], uid=uid, session="chat"):
        rule.wait()
        if fault is HoldAnswer:
            firestore_proxy.wait_for(
                "Commit", lambda call: call.rule is rule and bool(call.upstream)
            )
        owner.kill()
    lapse_turn(turn_id)
    assert ended(resume(serve("resume_turn"), turn_id, uid=uid)) == "x"
    assert history(other, uid, "chat") == ["once"]


def test_a_turn_that_waits_keeps_its_session_until_it_is_decided_or_stopped(
    serve: Serve, uid: str, tmp_path: Any
) -> None:
    """Approval, denial and stop all end in a free session."""
    starter, turn_id = serve("start_turn"), new_turn_id()
    script = [["tools", ["refund", {"path": str(tmp_path / "effect")}]], ["say", " done"]]
    with start(starter, turn_id, script, uid=uid, session="chat") as stream:
        stream.read_to_end()
        assert stream.events()[-1].event == "tool_pending"
    with start(starter, new_turn_id(), [["say", "x"]], uid=uid, session="chat") as refused:
        assert error_of(refused)["turnId"] == turn_id
    text = ended(decide(serve("run_tool_step"), turn_id, 1, "approve", uid=uid))
    assert text.endswith(" done")
    stopped = new_turn_id()
    with start(starter, stopped, script, uid=uid, session="chat") as stream:
        stream.read_to_end()
    assert cancel(serve("cancel_turn"), stopped, uid=uid) == "cancelled"
    seen = history(starter, uid, "chat")
    assert [one["content"] for one in seen] == [json.dumps(script), text]


def test_two_users_with_one_session_id_do_not_meet(serve: Serve, uid: str) -> None:
    """A session is of one user, by construction."""
    starter = serve("start_turn")
    ended(start(starter, new_turn_id(), [["remember", ["mine"]]], uid=uid, session="chat"))
    assert history(starter, f"other-{uid}", "chat") == []
    assert history(starter, uid, "chat") == ["mine"]


def test_a_session_needs_a_signed_in_user(serve: Serve) -> None:
    """Said before anything is made."""
    turn_id = new_turn_id()
    with start(serve("start_turn"), turn_id, [["say", "x"]], session="chat") as refused:
        assert refused.status == 401
        assert error_of(refused)["code"] == "sign_in_required"
    with resume(serve("resume_turn"), turn_id) as unknown:
        assert error_of(unknown)["code"] == "unknown_turn"


def test_of_ten_starts_in_two_containers_one_is_let_in(serve: Serve, uid: str) -> None:
    """One below the limit; the others are told to come back, and nothing is made of them."""
    containers = [serve("start_turn", MAX_TURNS_PER_MINUTE="2") for _ in range(2)]
    assert ended(start(containers[0], new_turn_id(), [["say", "x"]], uid=uid)) == "x"
    line = threading.Barrier(10)

    def one(number: int) -> tuple[str, int]:
        turn_id = new_turn_id()
        line.wait()
        while True:
            with start(containers[number % 2], turn_id, [["say", "x"]], uid=uid) as stream:
                stream.read_to_end()
                if stream.status != 503:  # a busy machine's Firestore: to be asked again
                    return turn_id, stream.status

    with ThreadPoolExecutor(10) as pool:
        came = dict(pool.map(one, range(10)))
    assert sorted(came.values()) == [200] + [429] * 9
    resumer = serve("resume_turn")
    for turn_id, status in came.items():
        with resume(resumer, turn_id, uid=uid) as stream:
            assert stream.status == (200 if status == 200 else 404)


@pytest.mark.parametrize(
    ("limit", "code"),
    [("MAX_RUNNING_TURNS", "too_many_running_turns"), ("MAX_TURNS_PER_MINUTE", "too_many_turns")],
)
def test_a_limit_is_429_and_says_when_to_come_back(
    serve: Serve, uid: str, gate: Gate, limit: str, code: str
) -> None:
    """Another user is let in; the turns that run can be attached to."""
    starter, turn_id, script = serve("start_turn", **{limit: "1"}), new_turn_id(), [gate.action]
    with start(starter, turn_id, script, uid=uid) as stream:
        stream.read_until("ping")
        with start(starter, new_turn_id(), script, uid=uid) as refused:
            assert refused.status == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert error_of(refused)["code"] == code
        assert ended(start(starter, new_turn_id(), [["say", "x"]], uid=f"other-{uid}")) == "x"
        with start(starter, turn_id, script, uid=uid) as again:
            again.read_until("ping")
            gate.open()
            assert ended(again) == ""
    if limit == "MAX_RUNNING_TURNS":
        assert ended(start(starter, new_turn_id(), [["say", "x"]], uid=uid)) == "x"
