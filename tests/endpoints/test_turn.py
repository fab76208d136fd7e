"""A turn from start to end, in every state a start or a resume can meet it in."""

from __future__ import annotations

import threading

import pytest

from functions.wire import sse
from tests.conftest import Serve
from tests.support.client import error_of, folded, new_turn_id, resume, start
from tests.support.firestore_proxy import FirestoreProxy, Hold, HoldAnswer
from tests.support.gate import Gate
from tests.support.server import FunctionServer

pytestmark = pytest.mark.emulator

COUNT_20 = [["count", 1, 20, 100]]
TEXT_20 = "".join(f"{n} " for n in range(1, 21))


@pytest.fixture
def starter(serve: Serve) -> FunctionServer:
    """A process of `start_turn`."""
    return serve("start_turn")


@pytest.fixture
def resumer(serve: Serve) -> FunctionServer:
    """A process of `resume_turn`."""
    return serve("resume_turn")


def test_a_turn_streams_its_tokens_and_ends_with_done(starter: FunctionServer) -> None:
    """Ids count from 1, and the terminal event comes exactly once, at the end."""
    with start(starter, new_turn_id(), COUNT_20) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.read_to_end() == "complete"
        events = stream.events()
    assert [event.id for event in events] == list(range(1, 22))
    assert "".join(event.data for event in events[:-1]) == TEXT_20
    assert (events[-1].event, events[-1].data) == ("done", {"reason": "stop"})


def test_a_resume_at_every_id_gets_the_same_bytes(
    starter: FunctionServer, resumer: FunctionServer
) -> None:
    """Whatever the cursor, in another process: the whole frames after it, byte for byte."""
    turn_id = new_turn_id()
    with start(starter, turn_id, COUNT_20) as stream:
        stream.read_to_end()
        whole = stream.body.replace(sse.PING, b"")
    for cursor in range(21):
        with resume(resumer, turn_id, cursor) as stream:
            stream.read_to_end()
            assert stream.body.replace(sse.PING, b"") == sse.after(whole, cursor)


def test_the_cursor_of_the_terminal_event_is_answered_204(
    starter: FunctionServer, resumer: FunctionServer
) -> None:
    """204 tells an EventSource client to stop; above it is a 400."""
    turn_id = new_turn_id()
    with start(starter, turn_id, COUNT_20) as stream:
        stream.read_to_end()
    with resume(resumer, turn_id, 21) as stream:
        assert stream.status == 204
    with start(starter, turn_id, COUNT_20, 21) as stream:
        assert stream.status == 204
    with resume(resumer, turn_id, 22) as stream:
        assert stream.status == 400
        assert error_of(stream)["code"] == "bad_cursor"


def test_the_same_start_again_attaches_and_another_conflicts(starter: FunctionServer) -> None:
    """One run, however often it is asked for; the id cannot be used for another prompt."""
    turn_id = new_turn_id()
    with start(starter, turn_id, [["count", 1, 20, 40]]) as first:
        first.read_until(3)
        with start(starter, turn_id, [["count", 1, 20, 40]]) as again:
            with start(starter, turn_id, COUNT_20) as other:
                assert other.status == 409
                assert error_of(other)["code"] == "turn_conflict"
            again.read_to_end()
            first.read_to_end()
            assert again.body.replace(sse.PING, b"") == first.body.replace(sse.PING, b"")


def test_an_unknown_turn_is_404_and_a_start_with_its_cursor_410(
    starter: FunctionServer, resumer: FunctionServer
) -> None:
    """A cursor proves that the turn existed: running it again would repeat its effects."""
    turn_id = new_turn_id()
    with resume(resumer, turn_id) as stream:
        assert stream.status == 404
        assert error_of(stream)["code"] == "unknown_turn"
    with start(starter, turn_id, COUNT_20, 5) as stream:
        assert stream.status == 410
        assert error_of(stream)["code"] == "gone"


@pytest.mark.parametrize("count", [2, 4, 10])
def test_starts_in_one_instant_make_one_run(
    serve: Serve, tmp_path_factory: pytest.TempPathFactory, count: int
) -> None:
    """Over two processes; all see the same events from the first on."""
    servers = [serve("start_turn"), serve("start_turn")]
    effects = tmp_path_factory.mktemp("effects") / "runs"
    script = [["effect", str(effects)], ["count", 1, 10, 50]]
    turn_id = new_turn_id()
    streams = [start(servers[n % 2], turn_id, script) for n in range(count)]
    try:
        for stream in streams:
            assert stream.read_to_end() == "complete"
        bodies = {stream.body.replace(sse.PING, b"") for stream in streams}
    finally:
        for stream in streams:
            stream.close()
    assert len(bodies) == 1
    assert len(effects.read_text().splitlines()) == 1


def test_a_follower_in_another_process_gets_the_owners_events(
    starter: FunctionServer, resumer: FunctionServer
) -> None:
    """Followers at different cursors, each from its own on."""
    turn_id = new_turn_id()
    with start(starter, turn_id, [["count", 1, 40, 40]]) as owner:
        owner.read_until(10)
        followers = [resume(resumer, turn_id, cursor) for cursor in (0, 3, 9)]
        owner.read_to_end()
        whole = owner.body.replace(sse.PING, b"")
        for cursor, follower in zip((0, 3, 9), followers, strict=True):
            with follower:
                follower.read_to_end()
                assert follower.body.replace(sse.PING, b"") == sse.after(whole, cursor)


@pytest.mark.parametrize("method", ["RunQuery", "BatchGetDocuments"])
@pytest.mark.parametrize("fault", [Hold, HoldAnswer])
def test_what_is_committed_at_the_seam_is_delivered_once(
    serve: Serve,
    firestore_proxy: FirestoreProxy,
    gate: Gate,
    fault: type[Hold | HoldAnswer],
    method: str,
) -> None:
    """Chunks are committed while a follower is held between its replay and its first look."""
    starter, turn_id = serve("start_turn"), new_turn_id()
    follow = serve("resume_turn", storage=firestore_proxy.address)
    script = [["count", 1, 20, 0], gate.action, ["count", 21, 60, 0]]
    with start(starter, turn_id, script) as owner:
        owner.read_until(10)
        go = threading.Event()
        after = {"RunQuery": 0, "BatchGetDocuments": 1}[method]
        rule = firestore_proxy.inject(method, fault(go), times=1, after=after)
        with resume(follow, turn_id, 3) as follower:
            rule.wait()
            gate.open()
            owner.read_to_end()
            go.set()
            follower.read_to_end()
            whole = owner.body.replace(sse.PING, b"")
            assert follower.body.replace(sse.PING, b"") == sse.after(whole, 3)


def test_a_second_stream_in_the_owners_process_reads_its_live_feed(
    starter: FunctionServer, gate: Gate
) -> None:
    """Attaches, though the first stream is never closed; the run is undisturbed."""
    turn_id = new_turn_id()
    script = [["count", 1, 20, 0], gate.action, ["count", 21, 30, 0]]
    with start(starter, turn_id, script) as first:
        first.read_until(10)
        with start(starter, turn_id, script, 10) as second:
            second.read_until(1)
            gate.open()
            second.read_to_end()
            first.read_to_end()
            whole = first.body.replace(sse.PING, b"")
            assert second.body.replace(sse.PING, b"") == sse.after(whole, 10)


def test_resume_takes_get_and_post(starter: FunctionServer, resumer: FunctionServer) -> None:
    """A body is not needed and not read."""
    turn_id = new_turn_id()
    with start(starter, turn_id, COUNT_20) as stream:
        stream.read_to_end()
    for method in ("GET", "POST"):
        with resume(resumer, turn_id, 0, method) as stream:
            stream.read_to_end()
            assert folded(stream).text == TEXT_20
