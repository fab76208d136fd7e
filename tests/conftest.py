"""Fixtures: the official Firestore emulator, real functions-framework processes, this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import hypothesis
import pytest

from dev import firestore_emulator as emulator_jar
from dev import java
from functions import firestore, settings
from functions.turns import cancel, creation, journal, record
from tests.support import leftover
from tests.support.emulator import Emulator
from tests.support.firestore_proxy import FirestoreProxy
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import FunctionServer

PROJECT = "demo-agent-turns"

# How long an example takes says more of the machine than of the code. In CI hypothesis's own
# default makes the examples the same in every run.
hypothesis.settings.register_profile(
    "here",
    hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("here")


@pytest.fixture(scope="session")
def firestore_emulator() -> Iterator[str]:
    """The host and port of an official Firestore emulator that lives as long as the session."""
    jar = emulator_jar.locate()
    if jar is None:
        reason = emulator_jar.MISSING.splitlines()[0]
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with Emulator(java.locate(), jar) as emulator:
        yield emulator.address


@pytest.fixture
def firestore_proxy(firestore_emulator: str) -> Iterator[FirestoreProxy]:
    """A gRPC proxy in front of the emulator, for faults."""
    with FirestoreProxy(upstream=firestore_emulator) as proxy:
        yield proxy


def _be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time, where no lease bounds it: for reads, and for races."""
    monkeypatch.setattr(firestore, "READ_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(creation, "CREATE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(cancel, "CANCEL_SECONDS", PATIENCE_SECONDS)
    reads = (firestore.read, firestore.get_all, record.load, journal.page, journal.tail)
    for read in (*reads, journal.chunk_at, journal.aged_chunk_at):
        assert read.__kwdefaults__ is not None
        monkeypatch.setitem(read.__kwdefaults__, "within_seconds", PATIENCE_SECONDS)


def _connect(monkeypatch: pytest.MonkeyPatch, address: str) -> Iterator[None]:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", address)
    monkeypatch.setenv("GCLOUD_PROJECT", PROJECT)
    monkeypatch.setenv("THREADS", "16")
    monkeypatch.setattr(firestore, "_client", None)
    settings.settings.cache_clear()
    _be_patient(monkeypatch)
    # The first call of a process takes a second, and on a busy machine longer than we wait.
    firestore.client().collection("warm").document("up").set({})
    leftover.begin()
    yield
    leftover.end()
    if firestore._client is not None:
        firestore._client.close()
    settings.settings.cache_clear()


@pytest.fixture
def storage(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package in this process, on the emulator."""
    yield from _connect(monkeypatch, firestore_emulator)


@pytest.fixture
def faulty_storage(
    firestore_proxy: FirestoreProxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FirestoreProxy]:
    """The package in this process, on the emulator behind the proxy that is given."""
    for _ in _connect(monkeypatch, firestore_proxy.address):
        yield firestore_proxy


Serve = Callable[..., FunctionServer]


@pytest.fixture
def serve(firestore_emulator: str) -> Iterator[Serve]:
    """Start a real process of one function: `serve("start_turn", LEASE_SECONDS="1")`."""
    with ExitStack() as stack:

        def start(target: str, *, storage: str | None = None, **environ: str) -> FunctionServer:
            server = FunctionServer(target, storage or firestore_emulator, PROJECT, environ)
            return stack.enter_context(server)

        yield start
