"""The wire: never silent, never held back, never full."""

from __future__ import annotations

import json
import socket
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from functions.turns import journal
from functions.wire import sse
from tests.conftest import Serve
from tests.support.client import error_of, folded, headers, key_of, new_turn_id, resume, start
from tests.support.gate import Gate
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.server import FunctionServer
from tests.support.sse import Ping, RawStream
from tests.support.tcp_proxy import CuttingProxy

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


def warmed(server: FunctionServer) -> FunctionServer:
    """The same process, after its first call to Firestore."""
    with resume(server, new_turn_id()) as stream:
        assert stream.status in {404, 405}
    if server._target == "start_turn":
        with start(server, new_turn_id(), [["say", "warm"]]) as stream:
            stream.read_to_end()
    return server


def test_headers_and_pings_come_though_the_agent_is_silent(serve: Serve, gate: Gate) -> None:
    """At once, and then one after the other, with nothing else to say."""
    server = warmed(serve("start_turn", HEARTBEAT_SECONDS="0.3"))
    with start(server, new_turn_id(), [gate.action, ["say", "late"]]) as stream:
        assert stream.status == 200
        wait_until(lambda: stream.pings > 5)
        assert stream.events() == []
        gate.open()
        stream.read_to_end()
        assert folded(stream).text == "late"


def test_the_wire_is_never_silent_for_longer_than_a_heartbeat(serve: Serve, gate: Gate) -> None:
    """Nor at its beginning. Medians: a machine that stalls makes a few gaps longer, not most."""
    server = warmed(serve("start_turn", HEARTBEAT_SECONDS="2"))
    waits, gaps = [], []
    for _ in range(5):
        with start(server, new_turn_id(), [gate.action]) as stream:
            wait_until(lambda stream=stream: stream.pings > 2)  # type: ignore[misc]  # each its own
            pings = [frame.arrived for frame in stream.frames() if isinstance(frame, Ping)]
            waits.append(pings[0] - stream.sent)
            gaps += [later - earlier for earlier, later in pairwise(pings)]
    assert median(waits) < 1, waits
    assert median(gaps) < 3, gaps


def test_no_more_pings_come_than_are_needed(serve: Serve) -> None:
    """One for each heartbeat, and the first: a phone's radio wakes for each."""
    server = warmed(serve("start_turn", HEARTBEAT_SECONDS="1"))
    began = time.monotonic()
    with start(server, new_turn_id(), [["sleep", 3], ["say", "late"]]) as stream:
        stream.read_to_end()
        seconds = time.monotonic() - began
        # Each of them half a heartbeat after the one before, at the earliest.
        assert stream.pings <= 1 + 2 * seconds


def test_pings_are_not_journaled(serve: Serve, gate: Gate) -> None:
    """They carry no id, and the journal holds none."""
    server = serve("start_turn", HEARTBEAT_SECONDS="0.2")
    turn_id = new_turn_id()
    with start(server, turn_id, [["say", "a"], gate.action, ["say", "b"]]) as stream:
        wait_until(lambda: stream.pings > 3)
        gate.open()
        stream.read_to_end()
        frames = stream.body.replace(sse.PING, b"")
    chunks = journal.page(key_of(turn_id), 0).chunks
    assert b"".join(chunk.frames for chunk in chunks) == frames


def test_a_follower_is_never_left_in_silence(serve: Serve, gate: Gate) -> None:
    """Also while the owner, in another process, says nothing."""
    starter, turn_id = serve("start_turn"), new_turn_id()
    follow = serve("resume_turn", HEARTBEAT_SECONDS="0.3")
    with start(starter, turn_id, [["say", "a"], gate.action, ["say", "b"]]) as stream:
        stream.read_until(1)
        with resume(follow, turn_id) as follower:
            follower.read_until(1)
            before = follower.pings
            wait_until(lambda: follower.pings > before + 5)
            gate.open()
            follower.read_to_end()
            assert folded(follower).text == "ab"


def test_events_arrive_as_they_are_made(serve: Serve, tmp_path: Path) -> None:
    """Not compressed, not buffered: each arrives before the agent may make the next one."""
    server, turn_id = serve("start_turn"), new_turn_id()
    gates = [Gate(tmp_path / str(number)) for number in range(5)]
    script = [action for gate in gates for action in (["say", "x"], gate.action)]
    given = headers(turn_id, Content_Type="application/json", Accept_Encoding="gzip, br")
    body = json.dumps({"prompt": json.dumps(script)}).encode()
    with RawStream(server.url, "POST", given, body) as stream:
        assert "content-encoding" not in stream.headers
        assert "content-length" not in stream.headers
        for number, gate in enumerate(gates, 1):
            stream.read_until(number)
            assert len(stream.events()) == number
            gate.open()
        stream.read_to_end()
        assert folded(stream).text == "x" * 5


def test_streams_above_the_cap_are_told_when_to_come_back(serve: Serve, gate: Gate) -> None:
    """503 with Retry-After; short calls are answered at once; a slot comes free on disconnect."""
    server = warmed(serve("start_turn", THREADS="6", HEARTBEAT_SECONDS="0.3"))
    script = [["say", "x"], gate.action]
    streams = [start(server, new_turn_id(), script) for _ in range(4)]
    for stream in streams:
        stream.read_until(1)
    given = headers(new_turn_id(), Content_Type="application/json")
    with RawStream(server.url, "POST", given, b'{"prompt":"[]"}') as refused:
        assert (refused.status, error_of(refused)["code"]) == (503, "at_capacity")
        assert int(refused.headers["retry-after"]) > 0
    for path, method in (("__/health", "GET"), ("", "OPTIONS"), ("", "GET")):
        with RawStream(server.url + path, method, {}) as short:
            assert short.status in {200, 204, 405}  # with every stream's thread still taken
    assert [stream.ending for stream in streams] == [None] * 4
    streams.pop().close()

    def let_in() -> bool:
        # The token of the refused call was not used up: it is good for this one.
        with RawStream(server.url, "POST", given, b'{"prompt":"[]"}') as stream:
            return stream.status == 200

    wait_until(let_in)
    for stream in streams:
        stream.close()


def test_turns_without_clients_are_bounded_too(serve: Serve, gate: Gate) -> None:
    """Starting and leaving, again and again, does not fill a container with threads."""
    server = warmed(serve("start_turn", THREADS="4", HEARTBEAT_SECONDS="0.1"))

    def left() -> bool:
        with start(server, new_turn_id(), [["say", "x"], gate.action]) as stream:
            if stream.status != 200:
                return False  # the last one's slot is not free yet
            stream.read_until(1)
            stream.abort()
            return True

    def refusal() -> str:
        with start(server, new_turn_id(), [["say", "x"]]) as stream:
            return "" if stream.status == 200 else str(error_of(stream)["message"])

    for _ in range(4):  # twice as many turns as streams
        wait_until(left)
    wait_until(lambda: refusal() == "this container runs as many turns as it may")


@pytest.mark.timeout(400)
def test_a_reader_that_stops_reading_holds_up_nobody(serve: Serve) -> None:
    """Memory stays bounded, the turn ends in time, and another reader has it all."""
    server, turn_id = warmed(serve("start_turn")), new_turn_id()
    script = [["say times", "🌍", 40_000]] * 100  # 48 MB on the wire
    with (
        CuttingProxy(server.url, buffer_bytes=4096) as proxy,
        start(proxy.url, turn_id, script) as stuck,
    ):
        stuck.read_until(1)
        proxy.stall()
        before = server.memory_bytes()
        with resume(serve("resume_turn"), turn_id) as other:
            other.read_to_end(timeout=3 * PATIENCE_SECONDS)
            assert folded(other).text == "🌍" * 4_000_000
        assert server.memory_bytes() - before < 60e6
        wait_until(lambda: "turn ended" in {line["message"] for line in server.log_lines()})
        # Let go, it goes on where it stood, from the journal, and misses nothing.
        proxy.unstall()
        assert stuck.read_to_end(timeout=3 * PATIENCE_SECONDS) == "complete"
        assert folded(stuck).text == "🌍" * 4_000_000


def test_a_slow_reader_gets_everything(serve: Serve) -> None:
    """5,000 events at 200 KB/s, through small buffers; renewals go on meanwhile."""
    server, turn_id = serve("start_turn"), new_turn_id()
    with CuttingProxy(server.url, buffer_bytes=4096) as proxy:
        proxy.throttle(200_000)
        with start(proxy.url, turn_id, [["count", 1, 5000, 2500]]) as slow:
            slow.read_to_end()
            assert folded(slow).text == "".join(f"{n} " for n in range(1, 5001))
            assert folded(slow).rewinds == 0


def test_a_reader_of_one_kilobyte_a_second_disturbs_nothing(serve: Serve) -> None:
    """The turn ends on time for everybody else; what the slow one has is a whole prefix."""
    server, turn_id = serve("start_turn"), new_turn_id()
    with CuttingProxy(server.url, buffer_bytes=1024) as proxy:
        proxy.throttle(1000)
        with start(proxy.url, turn_id, [["count", 1, 5000, 5000]]) as slow:
            slow.read_until(5)
            with resume(serve("resume_turn"), turn_id) as other:
                other.read_to_end()
                whole = other.body.replace(sse.PING, b"")
            got = slow.body[: len(slow.body) - len(slow.rest)].replace(sse.PING, b"")
            assert whole.startswith(got)
            assert len(got) < len(whole)


def test_a_cut_anywhere_costs_nothing(serve: Serve) -> None:
    """Cut in the middle of frames, resumed from the last whole one, again and again."""
    starter, resumer, turn_id = serve("start_turn"), serve("resume_turn"), new_turn_id()
    with start(starter, turn_id, [["count", 1, 200, 0]]) as stream:
        stream.read_to_end()
        whole = folded(stream).text
    with CuttingProxy(resumer.url) as proxy:
        state = folded()
        for _attempt in range(60):
            proxy.cut_after_bytes(700)
            with resume(proxy.url, turn_id, state.cursor) as piece:
                piece.read_to_end()
                folded(piece, into=state)
            if state.ended:
                break
    assert state.text == whole


def test_a_half_open_client_does_not_hold_up_its_return(serve: Serve, gate: Gate) -> None:
    """Its first stream is never closed; the second attaches all the same, the run goes on."""
    starter, turn_id = serve("start_turn"), new_turn_id()
    script = [["count", 1, 30, 0], gate.action, ["count", 31, 60, 0]]
    with CuttingProxy(starter.url) as proxy, start(proxy.url, turn_id, script) as first:
        first.read_until(5)
        proxy.stall()
        with start(starter, turn_id, script, 5) as second:
            second.read_until(1)
            gate.open()
            second.read_to_end()
            assert [event.id for event in second.events()] == list(range(6, 62))


def test_ten_first_requests_of_a_cold_process_are_all_answered(serve: Serve) -> None:
    """One client is made, lazily, and nobody waits for ever."""
    starter = serve("start_turn")
    streams = [start(starter, new_turn_id(), [["say", "hi"]]) for _ in range(10)]
    for stream in streams:
        with stream:
            stream.read_to_end()
            assert folded(stream).text == "hi"


def test_the_response_ends_before_the_platform_cuts_it(serve: Serve, gate: Gate) -> None:
    """At a frame boundary, without a terminal event; the client resumes the one run. The time runs
    from the request on, of which the client sent the last part late.
    """
    server = serve("start_turn", RESPONSE_SECONDS="30", HEARTBEAT_SECONDS="1")
    turn_id = new_turn_id()
    script = [["count", 1, 5, 0], gate.action, ["count", 6, 50, 0]]
    body = json.dumps({"prompt": json.dumps(script)}).encode()
    given = headers(turn_id, Content_Type="application/json", Content_Length=str(len(body)))
    with RawStream(server.url, "POST", given, body[:9]) as stream:
        time.sleep(12)
        stream._socket.sendall(body[9:])
        assert stream.read_to_end() == "complete"
        state = folded(stream)
        assert stream.rest == b""
        assert state.ended is None
        # 20 s after it came, and not 20 s after the last part of it.
        assert 14 < stream._ended - stream.sent < 29
    gate.open()
    with start(server, turn_id, script, state.cursor) as again:
        again.read_to_end()
        folded(again, into=state)
    assert state.text == "".join(f"{n} " for n in range(1, 51))
    assert state.rewinds == 0


def test_a_disconnect_is_not_waited_for(serve: Serve) -> None:
    """A client that sends half a request and leaves does not take a thread for good."""
    server = serve("start_turn", THREADS="4")
    for _ in range(8):
        with socket.create_connection(
            ("127.0.0.1", int(server.url.rsplit(":", 1)[1].strip("/")))
        ) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    with RawStream(server.url + "__/health", "GET") as stream:
        assert stream.status == 200
