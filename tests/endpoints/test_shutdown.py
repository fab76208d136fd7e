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

from functions.wire.fold import Fold
from tests.conftest import Serve
from tests.support.client import folded, headers, new_turn_id, resume, start
from tests.support.patience import wait_until
from tests.support.queue import TaskQueue
from tests.support.server import FunctionServer
from tests.support.sse import Frame, RawStream

pytestmark = pytest.mark.emulator

PLATFORM_SECONDS = 10
"""Between SIGTERM and SIGKILL."""
LEASE_SECONDS = "9"
"""As deployed: nobody takes a turn over within these tests unless its lease was released."""


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


def stop(server: FunctionServer) -> float:
    """SIGTERM, as the platform sends it; seconds until the process was gone by itself."""
    at = time.monotonic()
    server.terminate()
    assert server.wait(PLATFORM_SECONDS) == 0, server.output()
    return time.monotonic() - at


def rewinds(stream: RawStream) -> list[float]:
    """When each rewind of a stream arrived."""
    return [f.arrived for f in stream.frames() if isinstance(f, Frame) and f.event == "rewind"]


def test_what_was_shown_is_committed_and_the_turn_goes_on_elsewhere_at_once(serve: Serve) -> None:
    """The stream ends at a frame boundary without `done`; the lease is released, not waited for."""
    owner, other = (
        serve("start_turn", LEASE_SECONDS=LEASE_SECONDS),
        serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS),
    )
    turn_id = new_turn_id()
    with start(owner, turn_id, [["count", 1, 120, 40]]) as stream:
        stream.read_until(20)
        stop(owner)
        stopped_at = time.monotonic()
        assert stream.read_to_end() == "complete"
        assert stream.rest == b""
        state = folded(stream)
        assert state.ended is None
        shown = state.cursor
    with resume(other, turn_id, shown) as again:
        again.read_until("rewind", timeout=10)
        assert rewinds(again)[0] - stopped_at < float(LEASE_SECONDS)
        again.read_to_end(timeout=20)
        assert folded(again, into=state).text == numbers(120)
    with resume(other, turn_id, 0) as whole:
        whole.read_to_end()
        ids = [event.id for event in whole.events() if event.id < 10_000]
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) >= shown, "shown, and not committed"
    assert "lease released" in words(owner)
    assert words(other).count("took over") == 1


def test_a_follower_elsewhere_takes_a_released_turn_without_waiting_for_the_lease(
    serve: Serve,
) -> None:
    """Nobody resumes: the one who follows already sees the release in the journal."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    other = serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS)
    with start(owner, turn_id, [["count", 1, 60, 20]]) as stream:
        stream.read_until(5)
        with resume(other, turn_id) as follower:
            follower.read_until(10)
            at = time.monotonic()
            owner.terminate()
            follower.read_until("rewind", timeout=20)
            assert rewinds(follower)[0] - at < float(LEASE_SECONDS) / 2
            follower.read_to_end(timeout=20)
            assert folded(follower).text == numbers(60)


def test_followers_and_idle_connections_do_not_hold_the_container_up(serve: Serve) -> None:
    """Their streams end, too, though their turn is owned elsewhere and goes on."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    follower = serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS)
    with start(owner, turn_id, [["count", 1, 100, 20]]) as stream:
        stream.read_until(5)
        with resume(follower, turn_id) as followed:
            followed.read_until(8)
            stop(follower)
            assert followed.read_to_end() == "complete"
            assert folded(followed).ended is None
        stream.read_to_end(timeout=20)
        assert folded(stream).text == numbers(100)
        assert folded(stream).rewinds == 0


def test_a_turn_without_a_stream_is_released_before_the_process_ends(serve: Serve) -> None:
    """No open connection holds the process; the release does."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    with start(owner, turn_id, [["count", 1, 200, 20]]) as stream:
        stream.read_until(3)
        stream.abort()
    stop(owner)
    assert "lease released" in words(owner)
    at = time.monotonic()
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id) as again:
        again.read_until("rewind", timeout=20)
        assert rewinds(again)[0] - at < float(LEASE_SECONDS)


def test_a_tool_that_runs_may_end_and_its_outcome_is_recorded(serve: Serve, tmp_path: Path) -> None:
    """One call, one outcome, nothing in doubt; no further tool is begun here."""
    effects, hold, later = tmp_path / "effects", tmp_path / "hold", tmp_path / "later"
    hold.touch()
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    script = [
        ["tools", ["once", {"path": str(effects), "hold": str(hold)}]],
        ["tools", ["once", {"path": str(later)}]],
    ]
    with start(owner, turn_id, script) as stream:
        stream.read_until("tool_start")
        while not effects.exists():
            time.sleep(0.01)
        owner.terminate()
        while "draining" not in words(owner):
            time.sleep(0.05)
        hold.unlink()
        assert owner.wait(PLATFORM_SECONDS) == 0
        stream.read_to_end()
        state = folded(stream)
        assert not later.exists()
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id, state.cursor) as again:
        again.read_to_end(timeout=20)
        folded(again, into=state)
    assert state.ended is not None
    assert state.text.count("[ok") == 2
    assert len(effects.read_text().splitlines()) == 1
    assert len(later.read_text().splitlines()) == 1


def test_a_tool_that_outlasts_the_container_is_in_doubt_and_not_called_again(
    serve: Serve, tmp_path: Path
) -> None:
    """It is waited for as long as the platform allows; then the turn is released all the same."""
    effects, hold = tmp_path / "effects", tmp_path / "hold"
    hold.touch()
    owner, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    script = [["tools", ["once", {"path": str(effects), "hold": str(hold)}]]]
    with start(owner, turn_id, script) as stream:
        stream.read_until("tool_start")
        while not effects.exists():
            time.sleep(0.01)
        assert stop(owner) < PLATFORM_SECONDS
        stream.read_to_end()
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id) as again:
        again.read_to_end(timeout=20)
        assert folded(again).text.startswith("[in_doubt")
    assert len(effects.read_text().splitlines()) == 1


def test_no_new_stream_begins_in_a_container_that_drains(serve: Serve, tmp_path: Path) -> None:
    """On a connection that was kept alive: 503 with `Retry-After`, and no turn is made."""
    hold = tmp_path / "hold"
    hold.touch()
    server, turn_id = serve("start_turn", LEASE_SECONDS=LEASE_SECONDS), new_turn_id()
    script = [["tools", ["once", {"path": str(tmp_path / "x"), "hold": str(hold)}]]]
    kept = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    with start(server, turn_id, script) as stream:
        stream.read_until("tool_start")
        kept.request("GET", "/__/health")
        kept.getresponse().read()
        server.terminate()
        while "draining" not in words(server):
            time.sleep(0.02)
        body = json.dumps({"prompt": "[]"})
        late = new_turn_id()
        kept.request("POST", "/", body, headers(late, Content_Type="application/json"))
        answer = kept.getresponse()
        error = json.loads(answer.read())["error"]
        assert (answer.status, error["code"]) == (503, "draining")
        assert int(answer.headers["Retry-After"]) > 0
        hold.unlink()
        assert server.wait(PLATFORM_SECONDS) == 0
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), late) as none:
        assert none.status == 404


def test_a_container_that_gets_no_cpu_for_its_last_seconds(serve: Serve) -> None:
    """SIGTERM cannot be acted on, SIGKILL comes: the lease lapses, as after a crash."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 200, 40]]) as stream:
        stream.read_until(20)
        owner.freeze()
        owner.terminate()
        owner.kill()
        stream.read_to_end()
        state = folded(stream)
    with resume(serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS), turn_id, state.cursor) as again:
        again.read_to_end(timeout=20)
        assert folded(again, into=state).text == numbers(200)


@pytest.mark.parametrize("continues", [True, False])
def test_a_rolling_change_of_version_with_turns_in_flight(
    serve: Serve, stack: ExitStack, continues: bool
) -> None:
    """Containers of the old version end; the new one goes on with their turns, or says why not."""
    accepts = "1" if continues else ""
    new = serve(
        "resume_turn", LEASE_SECONDS=LEASE_SECONDS, AGENT_VERSION="2", AGENT_ACCEPTS=accepts
    )
    olds = [serve("start_turn", LEASE_SECONDS=LEASE_SECONDS, AGENT_VERSION="1") for _ in range(2)]
    turns = [new_turn_id() for _ in olds]
    streams = [
        stack.enter_context(start(old, turn_id, [["count", 1, 200, 40]]))
        for old, turn_id in zip(olds, turns, strict=True)
    ]
    states = [Fold() for _ in olds]
    for stream in streams:
        stream.read_until(10)
    for old in olds:
        old.terminate()
    for old, stream, turn_id, state in zip(olds, streams, turns, states, strict=True):
        assert old.wait(PLATFORM_SECONDS) == 0
        stream.read_to_end()
        folded(stream, into=state)
        assert state.ended is None
        with resume(new, turn_id, state.cursor) as again:
            again.read_to_end(timeout=20)
            folded(again, into=state)
        if continues:
            assert state.text == numbers(200)
            assert state.rewinds == 1
        else:
            last = again.events()[-1]
            assert (last.event, last.data["code"]) == ("error", "agent_changed")


def test_sigterm_is_left_to_gunicorn(serve: Serve) -> None:
    """An idle container ends at once, also one that never served a stream."""
    server = serve("resume_turn", LEASE_SECONDS=LEASE_SECONDS)
    assert stop(server) < PLATFORM_SECONDS / 2
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_container_ends_after_the_looks_at_its_turns_are_scheduled(serve: Serve) -> None:
    """A turn that was just begun, and whose client left, would have nobody to finish it."""
    hold = threading.Event()
    with TaskQueue(hold=hold) as queue:
        owner = serve(
            "start_turn", LEASE_SECONDS=LEASE_SECONDS, CLOUD_TASKS_EMULATOR_HOST=queue.address
        )
        with start(owner, new_turn_id(), [["count", 1, 200, 20]]) as stream:
            stream.read_until(3)
            stream.abort()
        owner.terminate()
        wait_until(lambda: "lease released" in words(owner))
        time.sleep(0.5)  # or it would be drained now
        assert "drained" not in words(owner)
        hold.set()
        assert owner.wait(PLATFORM_SECONDS) == 0, owner.output()
        assert len(queue.tasks(1)) == 1
