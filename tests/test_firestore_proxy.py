"""The proxy of Firestore does what its faults say: in front of the real emulator."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import Empty, Queue

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
from tests.support.tcp_proxy import CuttingProxy

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
