"""SIGTERM, and ten seconds until SIGKILL: what a container does with its streams and turns."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from functions.endpoints.shutdown import DRAIN_SECONDS
from functions.wire.fold import Fold
from tests.conftest import Serve
from tests.support.client import folded, headers, new_turn_id, resume, start
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.queue import TaskQueue
from tests.support.server import FunctionServer

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

PLATFORM_SECONDS = 10
"""Between SIGTERM and SIGKILL."""
LEASE_SECONDS = "60"
"""Nobody takes a turn over within these tests unless its lease was released: the last renewal of
one that was not is 20 s old at most."""
RELEASED_SECONDS = 30
"""Far more than whoever takes a released turn needs, and less than a lease lasts."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as opened:
        yield opened


def numbers(last: int) -> str:
    """What `["count", 1, last, …]` says."""
    return "".join(f"{n} " for n in range(1, last + 1))


def words(server: FunctionServer) -> list[str]:
    """The messages it logged."""
    return [line["message"] for line in server.log_lines()]


def stop(server: FunctionServer) -> None:
    """SIGTERM, as the platform sends it; returns when the process is gone by itself."""
    server.terminate()
    assert server.wait() == 0, server.output()


def wait_until_draining(server: FunctionServer) -> None:
    """Return when it is about to end, and says so."""
    wait_until(lambda: "draining" in words(server))


def wait_for(path: Path) -> None:
    """Return when a tool has taken effect."""
    wait_until(path.exists)


def test_all_is_done_before_the_platform_kills() -> None:
    """With some time left for what nobody counts."""
    assert DRAIN_SECONDS <= PLATFORM_SECONDS - 2


def test_a_container_is_gone_before_the_platform_kills(serve: Serve, tmp_path: Path) -> None:
    """Also with a tool that hangs. One of three, for a machine that stalls takes its own time."""
    hold = tmp_path / "hold"
    hold.touch()

    def seconds() -> float:
        effects = tmp_path / new_turn_id()
        owner = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS)
        script = [["tools", ["once", {"path": str(effects), "hold": str(hold)}]]]
        with start(owner, new_turn_id(), script) as stream:
            stream.read_until("tool_start")
            wait_for(effects)
            at = time.monotonic()
            stop(owner)
            return time.monotonic() - at

    assert any(seconds() < PLATFORM_SECONDS for _ in range(3))


def test_what_was_shown_is_committed_and_the_turn_goes_on_elsewhere_at_once(
    serve: Serve, gate: Gate
) -> None:
    """The stream ends at a frame boundary without `done`; the lease is released, not waited for."""
    owner, other = (
        serve("start_turn", LEASE_SECONDS=LEASE_SECONDS),
        serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS),
    )
    turn_id = new_turn_id()
    with start(owner, turn_id, [["count", 1, 1200, 40, str(gate)]]) as stream:
        stream.read_until(20)
        stop(owner)
        gate.open()
        assert stream.read_to_end() == "complete"
        assert stream.rest == b""
        state = folded(stream)
        assert state.ended is None
        shown = state.cursor
    with resume(other, turn_id, shown) as again:
        again.read_until("rewind", timeout=RELEASED_SECONDS)
        again.read_to_end()
        assert folded(again, into=state).text == numbers(1200)
    with resume(other, turn_id, 0) as whole:
        whole.read_to_end()
        ids = [event.id for event in whole.events() if event.id < 10_000]
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) >= shown, "shown, and not committed"
    assert "lease released" in words(owner)
    assert words(other).count("took over") == 1


def test_a_follower_elsewhere_takes_a_released_turn_without_waiting_for_the_lease(
    serve: Serve, gate: Gate
) -> None:
    """Nobody resumes: the one who follows already sees the release in the journal."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    other = serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS)
    script = [["count", 1, 10, 0], gate.action, ["count", 11, 60, 0]]
    with start(owner, turn_id, script) as stream:
        stream.read_until(5)
        with resume(other, turn_id) as follower:
            follower.read_until(10)
            stop(owner)
            gate.open()
            follower.read_until("rewind", timeout=RELEASED_SECONDS)
            follower.read_to_end()
            assert folded(follower).text == numbers(60)


def test_followers_and_idle_connections_do_not_hold_the_container_up(
    serve: Serve, gate: Gate
) -> None:
    """Their streams end, too, though their turn is owned elsewhere and goes on."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    follower = serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS)
    script = [["count", 1, 10, 0], gate.action, ["count", 11, 100, 0]]
    with start(owner, turn_id, script) as stream:
        stream.read_until(5)
        with resume(follower, turn_id) as followed:
            followed.read_until(8)
            stop(follower)
            assert followed.read_to_end() == "complete"
            assert folded(followed).ended is None
        gate.open()
        stream.read_to_end()
        assert folded(stream).text == numbers(100)
        assert folded(stream).rewinds == 0


def test_a_turn_without_a_stream_is_released_before_the_process_ends(
    serve: Serve, gate: Gate
) -> None:
    """No open connection holds the process; the release does."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    with start(owner, turn_id, [["count", 1, 10, 0], gate.action]) as stream:
        stream.read_until(3)
        stream.abort()
    stop(owner)
    assert "lease released" in words(owner)
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id) as again:
        again.read_until("rewind", timeout=RELEASED_SECONDS)


def test_a_tool_that_runs_may_end_and_its_outcome_is_recorded(serve: Serve, tmp_path: Path) -> None:
    """One call, one outcome, nothing in doubt; no further tool is begun here."""
    effects, hold, later = tmp_path / "effects", tmp_path / "hold", tmp_path / "later"
    hold.touch()
    owner = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS, DRAIN_SECONDS="25")
    turn_id = new_turn_id()
    script = [
        ["tools", ["once", {"path": str(effects), "hold": str(hold)}]],
        ["tools", ["once", {"path": str(later)}]],
    ]
    with start(owner, turn_id, script) as stream:
        stream.read_until("tool_start")
        wait_for(effects)
        owner.terminate()
        wait_until_draining(owner)
        hold.unlink()
        assert owner.wait() == 0
        stream.read_to_end()
        state = folded(stream)
        assert not later.exists()
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id, state.cursor) as again:
        again.read_to_end()
        folded(again, into=state)
    assert state.ended is not None
    assert state.text.count("[ok") == 2
    assert len(effects.read_text().splitlines()) == 1
    assert len(later.read_text().splitlines()) == 1


def test_a_tool_that_outlasts_the_container_is_in_doubt_and_not_called_again(
    serve: Serve, tmp_path: Path
) -> None:
    """It is not waited for for ever; the turn is released all the same."""
    effects, hold = tmp_path / "effects", tmp_path / "hold"
    hold.touch()
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    script = [["tools", ["once", {"path": str(effects), "hold": str(hold)}]]]
    with start(owner, turn_id, script) as stream:
        stream.read_until("tool_start")
        wait_for(effects)
        stop(owner)
        stream.read_to_end()
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id) as again:
        again.read_to_end()
        assert folded(again).text.startswith("[in_doubt")
    assert len(effects.read_text().splitlines()) == 1


def test_no_new_stream_begins_in_a_container_that_drains(serve: Serve, tmp_path: Path) -> None:
    """On a connection that was kept alive: 503 with `Retry-After`, and no turn is made."""
    hold = tmp_path / "hold"
    hold.touch()
    server = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS, DRAIN_SECONDS="25")
    turn_id = new_turn_id()
    script = [["tools", ["once", {"path": str(tmp_path / "x"), "hold": str(hold)}]]]
    kept = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE_SECONDS)
    with start(server, turn_id, script) as stream:
        stream.read_until("tool_start")
        kept.request("GET", "/__/health")
        kept.getresponse().read()
        server.terminate()
        wait_until_draining(server)
        body = json.dumps({"prompt": "[]"})
        late = new_turn_id()
        kept.request("POST", "/", body, headers(late, Content_Type="application/json"))
        answer = kept.getresponse()
        error = json.loads(answer.read())["error"]
        assert (answer.status, error["code"]) == (503, "draining")
        assert int(answer.headers["Retry-After"]) > 0
        hold.unlink()
        assert server.wait() == 0
    kept.close()
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), late) as none:
        assert none.status == 404


def test_a_container_that_gets_no_cpu_for_its_last_seconds(serve: Serve, gate: Gate) -> None:
    """SIGTERM cannot be acted on, SIGKILL comes: the lease lapses, as after a crash."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 30, 0], gate.action, ["count", 31, 200, 0]]) as stream:
        stream.read_until(20)
        owner.freeze()
        owner.terminate()
        owner.kill()
        lapse_turn(turn_id)
        gate.open()
        stream.read_to_end()
        state = folded(stream)
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id, state.cursor) as again:
        again.read_to_end()
        assert folded(again, into=state).text == numbers(200)


@pytest.mark.parametrize("continues", [True, False])
def test_a_rolling_change_of_version_with_turns_in_flight(
    serve: Serve, stack: ExitStack, gate: Gate, continues: bool
) -> None:
    """Containers of the old version end; the new one goes on with their turns, or says why not."""
    accepts = "1" if continues else ""
    new = serve(
        "resume_turn", LEASE_SECONDS=LEASE_SECONDS, AGENT_VERSION="2", AGENT_ACCEPTS=accepts
    )
    olds = [serve("start_turn", LEASE_SECONDS=LEASE_SECONDS, AGENT_VERSION="1") for _ in range(2)]
    turns = [new_turn_id() for _ in olds]
    script = [["count", 1, 20, 0], gate.action, ["count", 21, 200, 0]]
    streams = [
        stack.enter_context(start(old, turn_id, script))
        for old, turn_id in zip(olds, turns, strict=True)
    ]
    states = [Fold() for _ in olds]
    for stream in streams:
        stream.read_until(10)
    for old in olds:
        old.terminate()
    assert [old.wait() for old in olds] == [0, 0]
    gate.open()
    for stream, turn_id, state in zip(streams, turns, states, strict=True):
        stream.read_to_end()
        folded(stream, into=state)
        assert state.ended is None
        with resume(new, turn_id, state.cursor) as again:
            again.read_to_end()
            folded(again, into=state)
        if continues:
            assert state.text == numbers(200)
            assert state.rewinds == 1
        else:
            last = again.events()[-1]
            assert (last.event, last.data["code"]) == ("error", "agent_changed")


def test_sigterm_is_left_to_gunicorn(serve: Serve) -> None:
    """An idle container ends by itself, also one that never served a stream."""
    stop(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_container_ends_after_the_looks_at_its_turns_are_scheduled(
    serve: Serve, gate: Gate
) -> None:
    """A turn that was just begun, and whose client left, would have nobody to finish it."""
    hold = threading.Event()
    with TaskQueue(hold=hold) as queue:
        owner = serve(
            "start_turn",
            LEASE_SECONDS=LEASE_SECONDS,
            DRAIN_SECONDS="25",
            CLOUD_TASKS_EMULATOR_HOST=queue.address,
        )
        with start(owner, new_turn_id(), [["count", 1, 10, 0], gate.action]) as stream:
            stream.read_until(3)
            stream.abort()
        owner.terminate()
        wait_until(lambda: "lease released" in words(owner))
        time.sleep(0.5)  # or it would be drained now
        assert "drained" not in words(owner)
        hold.set()
        assert owner.wait() == 0, owner.output()
        assert len(queue.tasks(1)) == 1
