"""The fault harness does what its names say: on the real emulator, on real sockets."""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from queue import Empty, Queue

import httpx
import pytest
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.cloud import firestore

from tests.support.firestore_proxy import (
    Answer,
    Call,
    CutStream,
    Delay,
    DelayAnswer,
    DropAnswer,
    FirestoreProxy,
    Hang,
    Hold,
    HoldAnswer,
    Meet,
    touches,
)
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.server import whole_lines
from tests.support.sse import Frame, Headers, Ping, RawStream, parse_frame
from tests.support.tcp_proxy import CuttingProxy, How

PROJECT = "demo-support"
BRIEF = 0.3
"""A client's deadline that a test means to let pass."""


def connect(address: str) -> firestore.Client:
    """Return a client of the emulator at an address, whatever the environment says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRESTORE_EMULATOR_HOST", address)
        return firestore.Client(project=PROJECT)


@pytest.fixture
def behind(firestore_proxy: FirestoreProxy) -> Iterator[firestore.Client]:
    """Reach Firestore through the proxy."""
    with closing(connect(firestore_proxy.address)) as client:
        yield client


@pytest.fixture
def direct(firestore_emulator: str) -> Iterator[firestore.Client]:
    """Reach Firestore itself: what this client sees is what was applied."""
    with closing(connect(firestore_emulator)) as client:
        yield client


@pytest.fixture
def path() -> str:
    """Name a document nobody else uses."""
    return f"support/{uuid.uuid4().hex}"


def create(client: firestore.Client, path: str, timeout: float = PATIENCE_SECONDS) -> None:
    """Create the document with one commit, not retried."""
    client.document(path).create({"made": True}, retry=None, timeout=timeout)


def exists(client: firestore.Client, path: str) -> bool:
    """Say whether the document is there."""
    return bool(client.document(path).get(retry=None, timeout=PATIENCE_SECONDS).exists)


def give_up(client: firestore.Client, proxy: FirestoreProxy, path: str) -> None:
    """Create the document with a client that does not wait for the answer. On a busy machine it may
    have given up before the proxy had anything: then it asks again.
    """
    while not proxy.calls:
        with pytest.raises(exceptions.DeadlineExceeded):
            create(client, path, timeout=BRIEF)


def applied(call: Call) -> bool:
    """Say whether the emulator applied the call."""
    return call.upstream == "OK"


@pytest.mark.emulator
class TestFirestoreProxy:
    """Calls suffer what the rule says, and nothing else."""

    def test_calls_without_a_rule_pass_as_they_are(
        self, firestore_proxy: FirestoreProxy, behind: firestore.Client, path: str
    ) -> None:
        """Reads, queries, listeners, transactions, large commits and errors all get through."""
        parent = behind.document(path)
        batch = behind.batch()
        for n in range(4):
            batch.set(parent.collection("parts").document(f"{n}"), {"n": n, "fill": b"x" * 700_000})
        batch.commit()
        assert [part.get("n") for part in parent.collection("parts").order_by("n").stream()] == [
            0,
            1,
            2,
            3,
        ]
        assert parent.collection("parts").count().get()[0][0].value == 4
        assert len(list(parent.collection("parts").list_documents())) == 4

        @firestore.transactional
        def double(transaction: firestore.Transaction) -> int:
            part = parent.collection("parts").document("3")
            n = int(part.get(transaction=transaction).get("n"))
            transaction.update(part, {"n": 2 * n})
            return n

        assert double(behind.transaction()) == 3
        create(behind, path)
        with pytest.raises(exceptions.AlreadyExists, match="exists"):
            create(behind, path)
        seen = threading.Event()
        with closing(parent.on_snapshot(lambda *_: seen.set())):
            assert seen.wait(PATIENCE_SECONDS)
        assert {call.method for call in firestore_proxy.calls} == {
            "BatchGetDocuments",
            "BeginTransaction",
            "Commit",
            "ListDocuments",
            "Listen",
            "RunAggregationQuery",
            "RunQuery",
        }

    def test_answer_is_not_applied(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """A refused commit left nothing, and the next one passes."""
        firestore_proxy.inject("Commit", Answer("UNAVAILABLE"), times=1)
        with pytest.raises(exceptions.ServiceUnavailable):
            create(behind, path)
        assert not exists(direct, path)
        create(behind, path)
        assert [(call.upstream, call.answered) for call in firestore_proxy.calls] == [
            (None, "UNAVAILABLE"),
            ("OK", "OK"),
        ]

    def test_drop_answer_is_applied(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """A commit whose answer is lost was applied, and its repetition says so."""
        firestore_proxy.inject("Commit", DropAnswer("UNAVAILABLE"), times=1)
        with pytest.raises(exceptions.ServiceUnavailable):
            create(behind, path)
        assert exists(direct, path)
        with pytest.raises(exceptions.AlreadyExists):
            create(behind, path)

    def test_the_client_library_retries_into_already_exists(
        self, firestore_proxy: FirestoreProxy, behind: firestore.Client, path: str
    ) -> None:
        """With its default retry a lost answer turns into an error about its own write."""
        firestore_proxy.inject("Commit", DropAnswer("UNAVAILABLE"), times=1)
        with pytest.raises(exceptions.AlreadyExists):
            behind.document(path).create({"made": True})
        assert [call.answered for call in firestore_proxy.calls] == [
            "UNAVAILABLE",
            "ALREADY_EXISTS",
        ]

    def test_delay_outlives_the_client(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """A commit that arrives late is applied after its client has given it up."""
        firestore_proxy.inject("Commit", Delay(3 * BRIEF))
        give_up(behind, firestore_proxy, path)
        call = firestore_proxy.wait_for("Commit", applied)[0]
        assert exists(direct, path)
        assert call.forwarded is not None
        assert call.forwarded - call.arrived >= 3 * BRIEF
        firestore_proxy.wait_for("Commit", lambda call: call.answered == "CANCELLED")

    def test_hold_waits_for_the_test(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """A held commit is applied when the test says go, not before."""
        go = threading.Event()
        held = firestore_proxy.inject("Commit", Hold(go), times=1)
        with ThreadPoolExecutor() as threads:
            creating = threads.submit(create, behind, path)
            held.wait()
            assert not exists(direct, path)
            go.set()
            creating.result()
        assert exists(direct, path)

    def test_faults_act_in_order(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """Held, then applied, then answered wrongly: one rule, two faults."""
        go = threading.Event()
        held = firestore_proxy.inject("Commit", Hold(go), DropAnswer("ABORTED"), times=1)
        with ThreadPoolExecutor() as threads:
            creating = threads.submit(create, behind, path)
            held.wait()
            go.set()
            with pytest.raises(exceptions.Aborted):
                creating.result()
        assert exists(direct, path)

    def test_hold_answer_is_applied_at_once(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """The commit shows while its client still waits for the answer."""
        go = threading.Event()
        firestore_proxy.inject("Commit", HoldAnswer(go))
        with ThreadPoolExecutor() as threads:
            creating = threads.submit(create, behind, path)
            firestore_proxy.wait_for("Commit", applied)
            assert exists(direct, path)
            assert not creating.done()
            go.set()
            creating.result()

    def test_delay_answer_outlives_the_client(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """The client hears nothing in time about a commit that was applied at once."""
        firestore_proxy.inject("Commit", DelayAnswer(2 * BRIEF))
        give_up(behind, firestore_proxy, path)
        firestore_proxy.wait_for("Commit", applied)
        assert exists(direct, path)
        call = firestore_proxy.wait_for("Commit")[0]
        assert call.answered == "CANCELLED"

    def test_hang_is_never_applied(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """A call that hangs ends with its client's patience, and was not forwarded."""
        firestore_proxy.inject("Commit", Hang())
        give_up(behind, firestore_proxy, path)
        call = firestore_proxy.wait_for("Commit")[0]
        assert (call.forwarded, call.answered) == (None, "CANCELLED")
        assert not exists(direct, path)

    def test_meet_lets_rivals_start_together(
        self, firestore_proxy: FirestoreProxy, behind: firestore.Client, path: str
    ) -> None:
        """No rival is forwarded before the last has arrived, and one of them wins."""
        firestore_proxy.inject("Commit", Meet(5))

        def compete(_: int) -> bool:
            try:
                create(behind, path)
            except exceptions.AlreadyExists:
                return False
            return True

        with ThreadPoolExecutor(5) as threads:
            assert sum(threads.map(compete, range(5))) == 1
        forwarded = [call.forwarded or 0 for call in firestore_proxy.calls]
        assert min(forwarded) >= max(call.arrived for call in firestore_proxy.calls)

    def test_a_stream_is_cut_after_some_messages(
        self, firestore_proxy: FirestoreProxy, behind: firestore.Client, path: str
    ) -> None:
        """A query fails with two of its documents delivered."""
        parts = behind.document(path).collection("parts")
        for n in range(4):
            parts.document(f"{n}").set({"n": n})
        firestore_proxy.inject("RunQuery", CutStream(2, "UNAVAILABLE"))
        # With its default, or None, the library fails here with an AttributeError of its own.
        never = Retry(predicate=lambda _: False)
        query = parts.order_by("n").stream(retry=never, timeout=PATIENCE_SECONDS)
        assert [next(query).get("n"), next(query).get("n")] == [0, 1]
        with pytest.raises(exceptions.ServiceUnavailable):
            next(query)

    def test_a_listener_falls_silent(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """A stream that hangs looks alive, but a change no longer comes through."""
        create(direct, path)
        heard: Queue[bool] = Queue()

        def listen() -> closing[firestore.Watch]:
            watch = behind.document(path).on_snapshot(lambda *_: heard.put(True))
            return closing(watch)

        with listen():
            assert heard.get(timeout=PATIENCE_SECONDS)
        silent = firestore_proxy.inject("Listen", CutStream(0))
        with listen():
            silent.wait()
            direct.document(path).update({"changed": True})
            with pytest.raises(Empty):
                heard.get(timeout=BRIEF)

    def test_a_rule_picks_its_calls(
        self,
        firestore_proxy: FirestoreProxy,
        behind: firestore.Client,
        direct: firestore.Client,
        path: str,
    ) -> None:
        """Only the second and third commit of the named documents suffer."""
        rule = firestore_proxy.inject(
            "Commit", Answer("ABORTED"), when=touches(rf"{path}/parts/\d+"), after=1, times=2
        )
        outcomes = []
        for name in ("0", "other", "1", "2", "3"):
            try:
                create(behind, f"{path}/parts/{name}")
            except exceptions.Aborted:
                outcomes.append(name)
        assert outcomes == ["1", "2"]
        assert rule.fired == 2
        assert [bool(call.faults) for call in firestore_proxy.calls] == [
            False,
            False,
            True,
            True,
            False,
        ]
        assert not exists(direct, f"{path}/parts/1")

    def test_a_removed_rule_no_longer_fires(
        self, firestore_proxy: FirestoreProxy, behind: firestore.Client, path: str
    ) -> None:
        """Rules come and go while the proxy runs; `*` means every method."""
        rule = firestore_proxy.inject("*", Answer("RESOURCE_EXHAUSTED"))
        with pytest.raises(exceptions.ResourceExhausted):
            create(behind, path)
        firestore_proxy.remove(rule)
        create(behind, path)

    def test_an_error_in_a_predicate_fails_the_test(self, firestore_emulator: str) -> None:
        """A test's own mistake is not swallowed by the server's threads."""

        def mistaken(request: object) -> bool:
            raise LookupError(f"{type(request).__name__} seen")

        with (
            pytest.raises(LookupError, match="CommitRequest seen"),
            FirestoreProxy(firestore_emulator) as proxy,
        ):
            proxy.inject("Commit", Hang(), when=mistaken)
            with (
                closing(connect(proxy.address)) as client,
                pytest.raises(exceptions.InternalServerError, match="LookupError"),
            ):
                create(client, "support/mistaken")

    def test_other_processes_suffer_too(
        self, firestore_proxy: FirestoreProxy, direct: firestore.Client, path: str
    ) -> None:
        """A client of another process meets the same rules."""
        firestore_proxy.inject("Commit", DropAnswer("UNAVAILABLE"))
        program = (
            "import sys; from google.cloud import firestore\n"
            f"client = firestore.Client(project={PROJECT!r})\n"
            f"client.document(sys.argv[1]).create({{}}, retry=None, timeout={PATIENCE_SECONDS})\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program, path],
            env={**os.environ, "FIRESTORE_EMULATOR_HOST": firestore_proxy.address},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert b"503 injected by FirestoreProxy" in ended.stderr
        assert exists(direct, path)

    def test_closing_abandons_what_is_held(
        self, firestore_emulator: str, direct: firestore.Client, path: str
    ) -> None:
        """Closing is quick, leaves no thread, and applies nothing that was held back."""
        before = set(threading.enumerate())
        faults = (Delay(600), Hold(threading.Event()), Hang(), Meet(2))
        with ThreadPoolExecutor() as threads:
            with FirestoreProxy(firestore_emulator) as proxy:
                client = connect(proxy.address)
                creating = []
                for n, fault in enumerate(faults):
                    rule = proxy.inject("Commit", fault, times=1)
                    creating.append(threads.submit(create, client, f"{path}/held/{n}", 60))
                    rule.wait()
                closing_since = time.monotonic()
            assert time.monotonic() - closing_since < PATIENCE_SECONDS
            with closing(client):
                for held in creating:
                    assert isinstance(held.exception(), exceptions.GoogleAPICallError)
        wait_until(lambda: set(threading.enumerate()) <= before)
        assert not list(direct.document(path).collection("held").stream())

    def test_a_connection_to_firestore_can_be_cut(
        self, firestore_emulator: str, direct: firestore.Client, path: str
    ) -> None:
        """The TCP proxy serves here as well: a cut loses the answer, and gRPC connects anew."""
        go = threading.Event()
        with (
            FirestoreProxy(firestore_emulator) as proxy,
            CuttingProxy(proxy.address) as wire,
            closing(connect(wire.address)) as client,
        ):
            proxy.inject("Commit", HoldAnswer(go), times=1)
            with ThreadPoolExecutor() as threads:
                creating = threads.submit(create, client, path)
                proxy.wait_for("Commit", applied)
                wire.cut("rst")
                assert isinstance(creating.exception(), exceptions.ServiceUnavailable)
            go.set()
            assert exists(direct, path)
            client.document(path).update({"again": True})


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PING = b":keep-alive\n\n"


def frame(n: int, event: str = "token", data: str = '"x"') -> bytes:
    """Return a frame as the product writes it."""
    return f"id: {n}\nevent: {event}\ndata: {data}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """Return the data as one chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Peer(socketserver.StreamRequestHandler):
    """The server's end of one connection, as a test's script sees it."""

    timeout = PATIENCE_SECONDS
    server: Server

    def handle(self) -> None:
        """Read the request's head and run the script, unless the client leaves before."""
        self.head = b""
        with suppress(ConnectionError):
            while (line := self.rfile.readline()) != b"\r\n":
                if not line:
                    return
                self.head += line
            self.server.script(self)

    def send(self, data: bytes) -> None:
        """Send the bytes now."""
        self.connection.sendall(data)

    def ended_by(self) -> str:
        """Wait for the client's end, and say how it came."""
        try:
            return "fin" if self.connection.recv(1) == b"" else "data"
        except ConnectionError:
            return "rst"


class Server(socketserver.ThreadingTCPServer):
    """A server that does to each connection what the test's script says."""

    allow_reuse_address = True
    script: Callable[[Peer], None]


@contextmanager
def serving(script: Callable[[Peer], None]) -> Iterator[str]:
    """Serve the script on a free port; yields its URL."""
    with Server(("127.0.0.1", 0), Peer) as server:
        server.script = script
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def stream_of(*writes: bytes) -> Callable[[Peer], None]:
    """Return a script that sends a whole event stream, one chunk for each write."""

    def script(peer: Peer) -> None:
        peer.send(HEAD + b"".join(map(chunk, writes)) + chunk(b""))
        peer.ended_by()

    return script


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


class TestRawStream:
    """What came is kept exactly, and what should not have come is an AssertionError."""

    def test_every_byte_is_kept_with_its_time(self) -> None:
        """However the bytes come, here one at a time, the frames and chunks are those sent."""
        writes = [PING, frame(1), frame(2, "tool_end", '{"step": 0}') + PING, frame(9, "done")]
        wire = HEAD + b"".join(map(chunk, writes)) + chunk(b"")

        opened = threading.Event()

        def came(count: int, _: object) -> bool:
            return len(stream.raw) >= count

        def script(peer: Peer) -> None:
            opened.wait(PATIENCE_SECONDS)
            for n in range(len(wire)):
                peer.send(wire[n : n + 1])
                stream.read_until(partial(came, n + 1))

        with serving(script) as url, RawStream(url) as stream:
            opened.set()
            assert stream.read_to_end() == "complete"
            assert stream.status == 200
            assert stream.headers["content-type"] == "text/event-stream"
            assert stream.raw == wire
            assert stream.body == b"".join(data for _, data in stream.arrivals) == b"".join(writes)
            assert stream.chunks == writes
            assert [(event.id, event.event, event.data) for event in stream.events()] == [
                (1, "token", "x"),
                (2, "tool_end", {"step": 0}),
                (9, "done", "x"),
            ]
            assert len(stream.frames()) == 5
            times = [stream.sent, *(at for at, _ in stream.arrivals)]
            assert times == sorted(times)
            assert stream.events()[-1].arrived == times[-1]

    def test_the_request_goes_out_as_given(self) -> None:
        """Method, query, body and even illegal header bytes reach the server untouched."""
        heads: Queue[bytes] = Queue()

        def script(peer: Peer) -> None:
            heads.put(peer.head + peer.rfile.read(4))
            peer.send(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nVary: a\r\nVary: b\r\n\r\n{}"
            )

        headers: Headers = [("Last-Event-ID", b"\xb2"), ("X-Twice", " 7 "), ("X-Twice", "8")]
        with serving(script) as url, RawStream(f"{url}/a?b=c", "POST", headers, b"body") as stream:
            assert stream.read_to_end() == "complete"
            assert (stream.status, stream.body, stream.headers["vary"]) == (400, b"{}", "a, b")
            with pytest.raises(AssertionError, match="not an event stream"):
                stream.frames()
        host = url.removeprefix("http://").encode()
        assert heads.get(timeout=PATIENCE_SECONDS) == (
            b"POST /a?b=c HTTP/1.1\r\nHost: " + host + b"\r\nAccept: text/event-stream\r\n"
            b"Content-Length: 4\r\nLast-Event-ID: \xb2\r\nX-Twice:  7 \r\nX-Twice: 8\r\nbody"
        )

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b":keep-alive ",
            b": keep-alive",
            b"data: 1",
            b"id: 1\ndata: 1",
            b"id: 1\nevent: token\ndata: 1\n",
            b"id: 01\nevent: token\ndata: 1",
            b"id: -1\nevent: token\ndata: 1",
            b"id: 1\nevent: \ndata: 1",
            b"id: 1\nevent: Token\ndata: 1",
            b"event: token\nid: 1\ndata: 1",
            b"id: 1\nevent: token\ndata:1",
            b"id: 1\r\nevent: token\r\ndata: 1",
            b"id: 1\nevent: token\ndata: 1\ndata: 2",
            b"id: 1\nevent: token\ndata: 1\nretry: 5",
            b"id: 1\nevent: token\ndata: 1\n:keep-alive",
            b"id: 1\nevent: token\ndata: {",
            b"id: 1\nevent: token\ndata: NaN",
            b"id: 1\nevent: token\ndata: [-Infinity]",
            b'id: 1\nevent: token\ndata: "\xff"',
        ],
    )
    def test_only_our_frames_are_frames(self, raw: bytes) -> None:
        """Anything but a ping and the three lines in their order is refused."""
        with pytest.raises(AssertionError):
            parse_frame(raw)

    def test_blank_lines_are_the_only_separator(self) -> None:
        """Characters that other readers split at are inside the string they belong to."""
        data = '"a\u2028b\u2029c\u0085d\x7f"'
        parsed = parse_frame(f"id: 1\nevent: token\ndata: {data}".encode())
        assert isinstance(parsed, Frame)
        assert parsed.data == data[1:-1]

    def test_a_broken_frame_ends_the_waiting(self) -> None:
        """A reader that waits for more is told at once what came instead."""
        with (
            serving(stream_of(frame(1), b"data: forged\n\n", frame(2))) as url,
            RawStream(url) as stream,
            pytest.raises(AssertionError, match="forged"),
        ):
            stream.read_until(2)

    def test_read_until_says_how_it_ended(self) -> None:
        """An end that comes first is an AssertionError; half a frame is in `rest`."""
        whole, half = frame(1), frame(2)[:9]

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(whole) + chunk(half))

        with serving(script) as url, RawStream(url) as stream:
            assert stream.read_until(lambda frames: len(frames) == 1) == stream.events()
            with pytest.raises(AssertionError, match=r"ended \(cut\) before done"):
                stream.read_until("done")
            assert stream.ending == "cut"
            assert stream.rest == half

    def test_bytes_that_are_not_http_are_told_apart(self) -> None:
        """A chunk size that is none is neither a cut nor an end."""
        with (
            serving(lambda peer: peer.send(HEAD + b"zz\r\n")) as url,
            RawStream(url) as stream,
        ):
            assert stream.read_to_end() == "garbled"

    @pytest.mark.parametrize("how", ["fin", "rst"])
    def test_the_server_sees_how_the_client_left(self, how: How) -> None:
        """`close` is a FIN, `abort` an RST; what came stays readable."""
        ends: Queue[str] = Queue()

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(PING))
            ends.put(peer.ended_by())

        with serving(script) as url, RawStream(url) as stream:
            stream.read_until("ping")
            (stream.close if how == "fin" else stream.abort)()
            assert ends.get(timeout=PATIENCE_SECONDS) == how
            assert (stream.body, stream.ending) == (PING, None)


def test_a_log_can_be_read_while_it_is_written() -> None:
    """No line is lost, torn or overwritten, however often somebody looks."""
    print_lines = "for n in range(20_000): print(n, 'x' * 50, flush=True)"
    with tempfile.TemporaryFile() as log:
        with subprocess.Popen([sys.executable, "-c", print_lines], stdout=log) as process:
            while process.poll() is None:
                lines = whole_lines(log.fileno()).splitlines()
                assert lines == [f"{n} {'x' * 50}" for n in range(len(lines))]
        assert len(whole_lines(log.fileno()).splitlines()) == 20_000
