"""Steps that wait for a person: decided once, by anybody, run once, and waiting costs nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from functions.wire.fold import Fold
from tests.conftest import Serve
from tests.support.client import (
    cancel,
    decide,
    error_of,
    folded,
    headers,
    key_of,
    new_turn_id,
    resume,
    start,
)
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn, load
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


@pytest.fixture
def decider(serve: Serve) -> FunctionServer:
    """A process of `run_tool_step`."""
    return serve("run_tool_step")


def lines(path: Path) -> list[str]:
    """The effects that took place."""
    return path.read_text().splitlines() if path.exists() else []


def outcomes(stream: RawStream) -> list[str]:
    """The statuses of the steps that ended."""
    return [event.data["status"] for event in stream.events() if event.event == "tool_end"]


def ask(server: FunctionServer, *actions: list[Any]) -> tuple[str, Fold]:
    """Run a script until it waits: the turn's id, and what its client holds."""
    turn_id = new_turn_id()
    with start(server, turn_id, [*actions]) as stream:
        assert stream.read_to_end() == "complete"
        assert stream.events()[-1].event == "tool_pending"
        return turn_id, folded(stream)


def test_the_response_ends_when_the_turn_waits(serve: Serve, tmp_path: Path) -> None:
    """With `tool_pending`, and at once; so does a resume, which takes no lease."""
    turn_id, state = ask(
        serve("start_turn"), ["say", "A"], ["tools", ["refund", {"path": str(tmp_path / "x")}]]
    )
    assert state.text == "A"
    resumer = serve("resume_turn")
    for cursor in (0, state.cursor):
        with resume(resumer, turn_id, cursor) as stream:
            assert stream.read_to_end() == "complete"
            assert folded(stream).ended is None
    assert lines(tmp_path / "x") == []
    assert not [line for line in resumer.log_lines() if line["message"] == "took over"]


def test_a_follower_ends_when_the_turn_waits(serve: Serve, tmp_path: Path, gate: Gate) -> None:
    """It does not ping on until the lease would have lapsed."""
    starter, follow = serve("start_turn", LEASE_SECONDS="60"), serve("resume_turn")
    turn_id = new_turn_id()
    script = [["say", "A"], gate.action, ["tools", ["refund", {"path": str(tmp_path / "x")}]]]
    with start(starter, turn_id, script) as stream:
        stream.read_until(1)
        with resume(follow, turn_id) as follower:
            follower.read_until(1)
            gate.open()
            stream.read_to_end()
            follower.read_to_end(timeout=30)
            assert follower.events()[-1].event == "tool_pending"


@pytest.mark.parametrize(
    ("decision", "status", "effects"), [("approve", "ok", 1), ("deny", "denied", 0)]
)
def test_a_decision_runs_the_turn_on(  # noqa: PLR0917 - a table
    serve: Serve,
    decider: FunctionServer,
    tmp_path: Path,
    decision: str,
    status: str,
    effects: int,
) -> None:
    """It streams like the others, from the cursor on; the model learns the outcome."""
    path = tmp_path / "x"
    turn_id, state = ask(
        serve("start_turn"), ["say", "A"], ["tools", ["refund", {"path": str(path)}]], ["say", "B"]
    )
    with decide(decider, turn_id, 1, decision, state.cursor) as stream:
        stream.read_to_end()
        assert outcomes(stream) == [status]
        folded(stream, into=state)
    assert state.ended is not None
    assert state.text.startswith(f"A[{status} ")
    assert state.text.endswith("B")
    assert len(lines(path)) == effects
    with resume(serve("resume_turn"), turn_id) as replay:
        replay.read_to_end()
        assert folded(replay).text == state.text


def test_deciders_at_once_and_late_ones_see_the_one_outcome(
    serve: Serve, decider: FunctionServer, tmp_path: Path
) -> None:
    """Ten, half of whom approve and half deny; then one more of each."""
    path = tmp_path / "x"
    turn_id, _state = ask(serve("start_turn"), ["tools", ["refund", {"path": str(path)}]])
    results: list[list[str]] = []
    barrier = threading.Barrier(10)

    def attempt(decision: str) -> None:
        barrier.wait()
        with decide(decider, turn_id, 1, decision) as stream:
            stream.read_to_end()
            results.append(outcomes(stream))

    threads = [
        threading.Thread(target=attempt, args=(("approve", "deny")[n % 2],)) for n in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    for late in ("approve", "deny"):
        with decide(decider, turn_id, 1, late) as stream:
            stream.read_to_end()
            results.append(outcomes(stream))
    assert len(results) == 12
    assert results.count(results[0]) == 12
    assert results[0] in (["ok"], ["denied"])
    assert len(lines(path)) == (1 if results[0] == ["ok"] else 0)


def test_an_approval_that_nobody_gives_expires(
    serve: Serve, decider: FunctionServer, tmp_path: Path
) -> None:
    """Whoever looks next records it; a late decision changes nothing."""
    path = tmp_path / "x"
    turn_id, state = ask(serve("start_turn"), ["tools", ["hasty", {"path": str(path)}]])
    wait_until(lambda: load(key_of(turn_id)).lapsed)
    with decide(decider, turn_id, 1, "approve", state.cursor) as stream:
        stream.read_to_end()
        assert outcomes(stream) == ["expired"]
        assert folded(stream, into=state).ended
    assert lines(path) == []


def test_calls_that_need_no_approval_run_first_and_each_decision_counts(
    serve: Serve, decider: FunctionServer, tmp_path: Path
) -> None:
    """Of four calls of one response two wait: they are decided one after the other."""
    first, second, free = tmp_path / "1", tmp_path / "2", tmp_path / "free"
    calls = [
        ["refund", {"path": str(first)}],
        ["once", {"path": str(free)}],
        ["refund", {"path": str(second)}],
        ["again", {"path": str(free)}],
    ]
    turn_id, state = ask(serve("start_turn"), ["tools", *calls], ["say", "B"])
    assert len(lines(free)) == 2
    with decide(decider, turn_id, 3, "deny", state.cursor) as stream:
        stream.read_to_end()
        assert stream.events()[-1].event == "tool_pending"
        folded(stream, into=state)
    with decide(decider, turn_id, 1, "approve", state.cursor) as stream:
        stream.read_to_end()
        folded(stream, into=state)
    assert state.ended is not None
    told = json.dumps({"step": 1})
    assert state.text.startswith(f"[ok {told}; ok ")
    assert "; denied " in state.text
    assert (len(lines(first)), len(lines(second)), len(lines(free))) == (1, 0, 2)


def test_an_owner_killed_after_the_decision_does_not_lose_it(
    serve: Serve, decider: FunctionServer, tmp_path: Path
) -> None:
    """Killed in the approved call: `once`, so it is in doubt, and nobody is asked again."""
    path, hold = tmp_path / "x", tmp_path / "hold"
    hold.touch()
    args = {"path": str(path), "hold": str(hold)}
    turn_id, state = ask(serve("start_turn"), ["tools", ["refund", args]], ["say", "B"])
    with decide(decider, turn_id, 1, "approve", state.cursor) as stream:
        stream.read_until("tool_start")
        wait_until(lambda: bool(lines(path)))
        decider.kill()
        lapse_turn(turn_id)
        stream.read_to_end()
    with resume(serve("resume_turn"), turn_id) as stream:
        stream.read_to_end()
        assert folded(stream).text.startswith("[in_doubt ")
    assert len(lines(path)) == 1


def test_a_waiting_turn_can_be_stopped(
    serve: Serve, decider: FunctionServer, tmp_path: Path
) -> None:
    """A decision after that changes nothing."""
    path = tmp_path / "x"
    turn_id, _state = ask(serve("start_turn"), ["tools", ["refund", {"path": str(path)}]])
    assert cancel(serve("cancel_turn"), turn_id) == "cancelled"
    with decide(decider, turn_id, 1, "approve") as stream:
        stream.read_to_end()
        ended = folded(stream).ended
        assert ended is not None
        assert ended.data == {"reason": "cancelled"}
    assert lines(path) == []


def test_a_deploy_of_another_agent_between_asking_and_deciding(
    serve: Serve, tmp_path: Path
) -> None:
    """It cannot go on with the turn, says so, and calls nothing."""
    path = tmp_path / "x"
    turn_id, _state = ask(
        serve("start_turn", AGENT_VERSION="1"), ["tools", ["refund", {"path": str(path)}]]
    )
    with decide(serve("run_tool_step", AGENT_VERSION="2"), turn_id, 1, "approve") as stream:
        stream.read_to_end()
        assert stream.events()[-1].data["code"] == "agent_changed"
    assert lines(path) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"step": 1},
        {"step": True, "decision": "approve"},
        {"step": 0, "decision": "approve"},
        {"step": "1", "decision": "approve"},
        {"step": 1.5, "decision": "approve"},
        {"step": 1, "decision": "maybe"},
        {"step": 1, "decision": ["approve"]},
        {"step": 10**9, "decision": "deny"},
        {"step": 1, "decision": "deny", "more": 1},
    ],
)
def test_a_bad_decision_is_400(decider: FunctionServer, body: object) -> None:
    """With a message that says what to change."""
    given = headers(new_turn_id(), Content_Type="application/json")
    with RawStream(decider.url, "POST", given, json.dumps(body).encode()) as stream:
        assert (stream.status, error_of(stream)["code"]) == (400, "bad_body")


@pytest.mark.parametrize("ahead", [1, 480, 30_000, 2**53 - 10_000])
def test_a_cursor_that_cannot_be_decides_nothing(
    serve: Serve, decider: FunctionServer, tmp_path: Path, ahead: int
) -> None:
    """Above every event of a turn that waits: 400, also for a resume; the step waits on, and the
    decision that comes with a good cursor counts.
    """
    path, script = tmp_path / "effects", ["tools", ["refund", {"path": str(tmp_path / "effects")}]]
    turn_id, state = ask(serve("start_turn"), ["say", "A"], script)
    for stream in (
        decide(decider, turn_id, 1, "approve", state.cursor + ahead),
        resume(serve("resume_turn"), turn_id, state.cursor + ahead),
    ):
        with stream:
            assert (stream.status, error_of(stream)["code"]) == (400, "bad_cursor")
    assert lines(path) == []
    with decide(decider, turn_id, 1, "deny", state.cursor) as stream:
        stream.read_to_end()
        assert outcomes(stream) == ["denied"]


def test_unknown_turns_and_steps_are_404(serve: Serve, decider: FunctionServer) -> None:
    """And a step that needs no decision just streams."""
    with decide(decider, new_turn_id(), 1, "approve") as stream:
        assert (stream.status, error_of(stream)["code"]) == (404, "unknown_turn")
    turn_id = new_turn_id()
    with start(serve("start_turn"), turn_id, [["model", "m", [["say", "x"]], 1]]) as stream:
        stream.read_to_end()
    with decide(decider, turn_id, 2, "approve") as stream:
        assert (stream.status, error_of(stream)["code"]) == (404, "unknown_step")
    with decide(decider, turn_id, 1, "deny") as stream:
        stream.read_to_end()
        assert folded(stream).text == "x[m: 1]"
