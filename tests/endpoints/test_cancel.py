"""Stopping a turn (C1): one `done cancelled` for everybody, whatever the owner does."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.conftest import Serve
from tests.support.client import cancel, error_of, folded, headers, new_turn_id, resume, start
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


@pytest.fixture
def canceller(serve: Serve) -> FunctionServer:
    """A process of `cancel_turn`."""
    return serve("cancel_turn")


def test_a_stop_ends_the_turn_for_its_owner_and_its_followers(
    serve: Serve, canceller: FunctionServer, tmp_path: Path, gate: Gate
) -> None:
    """One terminal event, the same for both; the agent does nothing more; a resume neither."""
    owner, resumer = serve("start_turn"), serve("resume_turn")
    turn_id, later = new_turn_id(), tmp_path / "later"
    script = [["count", 1, 1200, 20, str(gate)], ["effect", str(later)]]
    with start(owner, turn_id, script) as stream:
        stream.read_until(10)
        with resume(resumer, turn_id) as follower:
            follower.read_until(5)
            assert cancel(canceller, turn_id) == "cancelled"
            for reader in (stream, follower):
                reader.read_to_end()
                last = reader.events()[-1]
                assert (last.event, last.data) == ("done", {"reason": "cancelled"})
            assert folded(stream).text == folded(follower).text
            assert stream.events()[-1].raw == follower.events()[-1].raw
    gate.open()
    with resume(serve("resume_turn"), turn_id) as again:
        again.read_to_end()
        assert folded(again).text == folded(stream).text
    time.sleep(2)
    assert not later.exists()


def test_a_stop_is_idempotent_and_leaves_a_finished_turn_alone(
    serve: Serve, canceller: FunctionServer
) -> None:
    """The answer says how the turn stands."""
    starter = serve("start_turn")
    running, finished = new_turn_id(), new_turn_id()
    with start(starter, running, [["sleep", 100]]) as stream:
        stream.read_until("ping")
        assert cancel(canceller, running) == "cancelled"
        assert cancel(canceller, running) == "cancelled"
        stream.read_to_end()
        assert len(stream.events()) == 2  # the rewind and the end
    with start(starter, finished, [["say", "all"]]) as stream:
        stream.read_to_end()
    assert cancel(canceller, finished) == "done"
    with resume(serve("resume_turn"), finished) as stream:
        stream.read_to_end()
        assert folded(stream).text == "all"


@pytest.mark.parametrize("when", ["killed before", "killed after", "frozen"])
def test_a_stop_survives_its_owner(
    serve: Serve, canceller: FunctionServer, gate: Gate, when: str
) -> None:
    """Nobody takes the turn over, and a frozen owner adds nothing when it thaws."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    script = [["count", 1, 20, 0], gate.action, ["count", 21, 100, 0]]
    with start(owner, turn_id, script) as stream:
        stream.read_until(10)
        if when == "killed before":
            owner.kill()
        elif when == "frozen":
            owner.freeze()
        assert cancel(canceller, turn_id) == "cancelled"
        if when == "killed after":
            owner.kill()
        gate.open()
        with resume(serve("resume_turn"), turn_id) as reader:
            reader.read_to_end()
            state = folded(reader)
        assert state.ended is not None
        assert state.ended.data == {"reason": "cancelled"}
        if when == "frozen":
            owner.thaw()
            stream.read_to_end()
            assert folded(stream).text == state.text
        lapse_turn(turn_id)
        with resume(serve("resume_turn"), turn_id) as again:
            again.read_to_end()
            assert folded(again).cursor == state.cursor


@pytest.mark.parametrize("seed", range(6))
def test_a_stop_that_races_with_the_end_has_one_outcome(
    serve: Serve, canceller: FunctionServer, seed: int
) -> None:
    """Either it was done, or it was cancelled: the answer, the owner and the journal agree."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["sleep", 0.5], ["say", "end"]]) as stream:
        stream.read_until("ping")
        time.sleep(0.3 + 0.05 * seed)
        status = cancel(canceller, turn_id)
        stream.read_to_end()
        terminal = [event for event in stream.events() if event.event in {"done", "error"}]
        assert len(terminal) == 1
        assert terminal[0].data["reason"] == {"done": "stop", "cancelled": "cancelled"}[status]
    with resume(serve("resume_turn"), turn_id) as again:
        again.read_to_end()
        assert folded(again).text == folded(stream).text


def test_stops_in_one_instant_end_the_turn_once(serve: Serve, canceller: FunctionServer) -> None:
    """Ten at once, against an owner that appends all the time."""
    owner, turn_id = serve("start_turn", FLUSH_SECONDS="0.02"), new_turn_id()
    answers: list[str] = []
    with start(owner, turn_id, [["count", 1, 9000, 100]]) as stream:
        stream.read_until(50)
        threads = [
            threading.Thread(target=lambda: answers.append(cancel(canceller, turn_id)))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        stream.read_to_end()
        assert [event.event for event in stream.events()].count("done") == 1
    assert answers == ["cancelled"] * 10


def test_an_unknown_turn_cannot_be_stopped(canceller: FunctionServer) -> None:
    """404, as for a resume; another app's turn is unknown, too."""
    with RawStream(canceller.url, "POST", headers(new_turn_id())) as stream:
        assert (stream.status, error_of(stream)["code"]) == (404, "unknown_turn")
    with RawStream(canceller.url, "GET", headers(new_turn_id())) as stream:
        assert (stream.status, error_of(stream)["code"]) == (405, "method_not_allowed")
