"""The proxy that cuts does so where and how its order says: on real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Queue

import httpx
import pytest

from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.peer import HEAD, PING, Peer, chunk, frame, serving, stream_of
from tests.support.sse import Frame, Ping, RawStream
from tests.support.tcp_proxy import CuttingProxy, How

BRIEF = 0.3
"""A silence that a test means to let pass."""


@contextmanager
def visitor(wire: CuttingProxy) -> Iterator[socket.socket]:
    """Connect a plain socket that has little room for what it does not read."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_SECONDS)
        client.connect(("127.0.0.1", int(wire.address.rpartition(":")[2])))
        yield client


class TestCuttingProxy:
    """Connections break where and how the order says, and bytes otherwise pass untouched."""

    @pytest.mark.parametrize("how", ["fin", "rst"])
    @pytest.mark.parametrize("count", [0, 1, len(HEAD), 70_001])
    def test_cut_after_bytes_is_exact_and_once(self, count: int, how: How) -> None:
        """The client gets exactly so many bytes, and the next connection gets all."""
        writes = [frame(n, data=f'"{"x" * 1000}"') for n in range(200)]
        with serving(stream_of(*writes)) as url, CuttingProxy(url) as wire:
            wire.cut_after_bytes(count, how)
            with RawStream(wire.url) as stream:
                assert stream.read_to_end() == ("cut" if how == "fin" else "reset")
                assert len(stream.raw) == count
            with RawStream(wire.url) as stream:
                assert stream.read_to_end() == "complete"
                assert stream.body == b"".join(writes)
            assert [(cut.reason, cut.downstream_bytes) for cut in wire.cuts] == [("bytes", count)]

    def test_a_reset_after_bytes_waits_for_a_slow_client(self) -> None:
        """An RST discards what is not delivered: it comes when the client's kernel has it all."""
        count = 50_000
        with serving(stream_of(b"x" * 2 * count)) as url, CuttingProxy(url) as wire:
            wire.cut_after_bytes(count, "rst")
            with visitor(wire) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                threading.Event().wait(BRIEF)
                received = 0
                with pytest.raises(ConnectionResetError):
                    while True:
                        received += len(client.recv(count))
            assert received == count

    def test_cut_after_bytes_counts_from_the_order(self) -> None:
        """On an open connection only the bytes after the order count, and `times` is obeyed."""
        go = threading.Semaphore(0)

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(PING))
            go.acquire(timeout=PATIENCE_SECONDS)
            peer.send(chunk(frame(1)))
            peer.ended_by()

        with serving(script) as url, CuttingProxy(url) as wire:
            with RawStream(wire.url) as stream:
                stream.read_until("ping")
                before = len(stream.raw)
                wire.cut_after_bytes(5, times=2)
                go.release()
                assert stream.read_to_end() == "cut"
                assert len(stream.raw) == before + 5
            go.release()
            with RawStream(wire.url) as stream:
                assert stream.read_to_end() == "cut"
                assert len(stream.raw) == 5
            go.release()
            with RawStream(wire.url) as stream:
                stream.read_until(1)

    @pytest.mark.parametrize(("how", "ending"), [("fin", "cut"), ("rst", "reset")])
    def test_cut_ends_all_connections_now(self, how: How, ending: str) -> None:
        """Both ends of every open connection see the FIN or the RST."""
        ends: Queue[str] = Queue()

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(PING))
            ends.put(peer.ended_by())

        with (
            serving(script) as url,
            CuttingProxy(url) as wire,
            RawStream(wire.url) as one,
            RawStream(wire.url) as two,
        ):
            one.read_until("ping")
            two.read_until("ping")
            wire.cut(how)
            assert [one.read_to_end(), two.read_to_end()] == [ending, ending]
            assert [ends.get(timeout=PATIENCE_SECONDS), ends.get(timeout=PATIENCE_SECONDS)] == [
                how,
                how,
            ]
            assert len(wire.cuts) == 2

    def test_a_fin_stays_one_with_bytes_unread(self) -> None:
        """A client that was still sending gets no reset after the end."""
        with serving(stream_of()) as url, CuttingProxy(url) as wire, visitor(wire) as client:
            wire.stall()
            client.sendall(b"x" * 100_000)
            wire.cut()
            assert client.recv(1) == b""
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0

    def test_a_cut_may_be_hidden_from_the_server(self) -> None:
        """The server goes on sending into nothing, as behind a front that hides disconnects."""
        go, sent = threading.Event(), threading.Event()

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(PING))
            go.wait(PATIENCE_SECONDS)
            peer.send(chunk(b"x" * 20_000_000))
            sent.set()

        with serving(script) as url, CuttingProxy(url) as wire, RawStream(wire.url) as stream:
            stream.read_until("ping")
            wire.cut(tell_server=False)
            assert stream.read_to_end() == "cut"
            assert wire.connections == 1
            go.set()
            assert sent.wait(PATIENCE_SECONDS)

    def test_idle_timeout_cuts_silence_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pings within the timeout keep the connection; the first longer silence ends it."""
        go = threading.Semaphore(0)

        def script(peer: Peer) -> None:
            peer.send(HEAD)
            for _ in range(5):
                go.acquire(timeout=PATIENCE_SECONDS)
                peer.send(chunk(PING))
            peer.ended_by()

        with serving(script) as url, CuttingProxy(url) as wire:
            # The proxy goes by a clock that this test moves on.
            now = wire._loop.time()
            monkeypatch.setattr(wire._loop, "time", lambda: now)
            wire.idle_timeout(BRIEF)
            with RawStream(wire.url) as stream:
                for count in range(1, 6):
                    go.release()
                    wait_until(lambda count=count: stream.pings == count)  # type: ignore[misc]
                    wire.unstall()  # an order: it is through with the ping when this is obeyed
                    now += 0.7 * BRIEF
                assert (stream.ending, wire.connections) == (None, 1)
                now += BRIEF
                assert stream.read_to_end() == "cut"
                assert stream.frames() == [Ping(at) for at, _ in stream.arrivals]
            assert [cut.reason for cut in wire.cuts] == ["idle"]

    def test_stall_holds_bytes_and_closes_back(self) -> None:
        """Nothing passes while stalled, not even a close; afterwards nothing is missing."""
        go = threading.Event()
        ends: Queue[str] = Queue()

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(PING))
            go.wait(PATIENCE_SECONDS)
            peer.send(chunk(frame(1)) + chunk(frame(2)))
            ends.put(peer.ended_by())

        with serving(script) as url, CuttingProxy(url) as wire, RawStream(wire.url) as stream:
            stream.read_until("ping")
            wire.stall()
            go.set()
            with pytest.raises(TimeoutError):
                stream.read_until(1, timeout=BRIEF)
            wire.unstall()
            assert [event.id for event in stream.read_until(2) if isinstance(event, Frame)] == [
                1,
                2,
            ]
            wire.stall()
            stream.close()
            with pytest.raises(Empty):
                ends.get(timeout=BRIEF)
            wire.unstall()
            assert ends.get(timeout=PATIENCE_SECONDS) == "fin"

    def test_throttle_slows_and_holds_up_the_server(self) -> None:
        """Bytes come no faster than the rate, and a server that writes more has to wait."""
        blocked = threading.Event()

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(b"x" * 20_000))
            peer.connection.settimeout(BRIEF)
            try:
                peer.send(chunk(b"y" * 20_000_000))
            except TimeoutError:
                blocked.set()

        with serving(script) as url, CuttingProxy(url) as wire:
            wire.throttle(40_000)
            began = time.monotonic()
            with RawStream(wire.url) as stream:
                assert blocked.wait(PATIENCE_SECONDS)
                arrived, seconds = len(stream.raw), time.monotonic() - began
                assert 0 < arrived <= 40_000 * seconds + 4_000
                wire.throttle(None)
                stream.read_to_end()
                assert stream.body.startswith(b"x" * 20_000 + b"y")

    def test_a_dead_server_is_a_reset(self) -> None:
        """With no server behind it the proxy accepts and resets, and goes on."""
        with serving(stream_of()) as url:
            pass
        with CuttingProxy(url) as wire:
            for _ in range(2):
                with pytest.raises(httpx.TransportError):
                    httpx.get(wire.url)

    def test_ordinary_requests_pass(self) -> None:
        """An ordinary HTTP client notices nothing, and closing leaves no thread."""
        before = set(threading.enumerate())
        with serving(stream_of(frame(1))) as url, CuttingProxy(url) as wire:
            assert httpx.get(wire.url).content == frame(1)
        wait_until(lambda: set(threading.enumerate()) <= before)
