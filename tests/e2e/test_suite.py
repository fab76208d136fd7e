"""A turn on the Emulator Suite, called as a page of the Hosting emulator would call it."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import processes, suite
from dev.project import ProblemError
from dev.suite import Suite
from functions import firestore
from functions.turns import record
from functions.wire import sse
from functions.wire.fold import Fold
from tests.support.client import error_of, folded, headers, new_turn_id
from tests.support.sse import RawStream

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(240)]

PROMPT = "Tell me about leases rate=100 silence=1 words=150"


@pytest.fixture(scope="module")
def stack(firestore_emulator: str) -> Iterator[Suite]:
    """Functions, Firestore, Auth, Hosting and Tasks, by the pinned firebase-tools."""
    assert firestore_emulator  # says in one line why not, where there is none
    ports = suite.choose_ports()
    origin = f"http://127.0.0.1:{ports['hosting']}"
    settings = {"LEASE_SECONDS": "2", "ALLOWED_ORIGINS": origin}
    try:
        with suite.running(ports=ports, settings=settings) as running:
            yield running
    except ProblemError as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))


def call(
    stack: Suite, function: str, turn_id: str, cursor: int | None = None, body: bytes | None = None
) -> RawStream:
    """One attempt of a page: its origin, its user, a fresh App Check token."""
    given = headers(turn_id, cursor, uid="a-reader", Origin=stack.hosting)
    if body is not None:
        given["Content-Type"] = "application/json"
    method = "GET" if body is None else "POST"
    return RawStream(stack.function(function), method, given, body, timeout=20)


def start(stack: Suite, turn_id: str) -> RawStream:
    """Start the demo agent."""
    return call(stack, "start_turn", turn_id, body=json.dumps({"prompt": PROMPT}).encode())


def container_of(stack: Suite, function: str) -> list[int]:
    """The processes that serve a function now."""
    wanted = f"FUNCTION_TARGET={function}".encode()
    return [
        pid
        for pid in processes.marked(stack.mark)
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]


def test_a_page_starts_is_cut_and_resumes_in_another_process(stack: Suite) -> None:
    """It misses nothing and gets nothing twice, through the Functions emulator."""
    turn_id, state = new_turn_id(), Fold()
    with start(stack, turn_id) as stream:
        assert stream.status == 200
        assert stream.headers["access-control-allow-origin"] == stack.hosting
        stream.read_until(40, timeout=30)
        stream.abort()
        folded(stream, into=state)
    with call(stack, "resume_turn", turn_id, state.cursor) as stream:
        stream.read_until(50, timeout=30)
        stream.abort()
        folded(stream, into=state)
    with call(stack, "resume_turn", turn_id, state.cursor) as stream:
        stream.read_to_end(timeout=30)
        folded(stream, into=state)
    assert state.ended is not None
    with call(stack, "resume_turn", turn_id, 0) as replay:
        replay.read_to_end(timeout=30)
        assert folded(replay).text == state.text
    assert len(state.text.split()) == 155
    assert state.rewinds == 0


def test_tokens_arrive_as_they_are_made(stack: Suite) -> None:
    """The Functions emulator holds nothing back: 100 tokens a second, one at a time."""
    with start(stack, new_turn_id()) as stream:
        stream.read_to_end(timeout=30)
        assert len(stream.arrivals) > 60
        assert stream.body.startswith(sse.PING)


def test_a_killed_container_costs_nothing(stack: Suite) -> None:
    """SIGKILL to the container that runs the turn; a follower in another finishes it."""
    turn_id = new_turn_id()
    with start(stack, turn_id) as cut:
        cut.read_until(60, timeout=30)
        with call(stack, "resume_turn", turn_id) as follower:
            follower.read_until(60, timeout=30)
            for pid in container_of(stack, "start_turn"):
                os.kill(pid, signal.SIGKILL)
            follower.read_to_end(timeout=30)
            state = folded(follower)
    assert state.ended is not None
    assert state.rewinds == 1
    assert len(state.text.split()) == 155


def test_errors_are_readable_by_the_page(stack: Suite) -> None:
    """JSON with its code and CORS, through the Functions emulator."""
    with call(stack, "resume_turn", new_turn_id()) as stream:
        assert (stream.status, error_of(stream)["code"]) == (404, "unknown_turn")
        assert stream.headers["access-control-allow-origin"] == stack.hosting
    with call(stack, "start_turn", "short", body=b"{}") as stream:
        assert (stream.status, error_of(stream)["code"]) == (400, "bad_turn_id")


def test_the_page_is_served(stack: Suite) -> None:
    """Hosting answers with it."""
    with urllib.request.urlopen(stack.hosting + "/", timeout=10) as page:
        assert b"<html" in page.read().lower()


def status_of(stack: Suite, turn_id: str) -> str:
    """A turn's stored status, read as an administrator, past every function."""
    key = record.turn_key("uid:a-reader", turn_id)
    url = (
        f"http://{stack.host('firestore')}/v1/projects/{stack.project}/databases/(default)"
        f"/documents/{firestore.TURNS}/{key}"
    )
    request = urllib.request.Request(url, headers={"Authorization": "Bearer owner"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["fields"]["status"]["stringValue"])


def looks_scheduled(stack: Suite) -> float:
    """How many tasks the Tasks emulator was given lately; by its own measure."""
    with urllib.request.urlopen(f"http://{stack.host('tasks')}/queueStats", timeout=10) as answer:
        return sum(float(queue["tasksAdded"]) for queue in json.load(answer).values())


def test_an_abandoned_turn_finishes_by_itself(stack: Suite) -> None:
    """Its client is gone, its container killed: the Tasks emulator has it finished."""
    turn_id, before = new_turn_id(), looks_scheduled(stack)
    with start(stack, turn_id) as stream:
        until = time.monotonic() + 30
        while looks_scheduled(stack) <= before:
            assert time.monotonic() < until
            time.sleep(0.02)
        for pid in container_of(stack, "start_turn"):
            os.kill(pid, signal.SIGKILL)
        stream.abort()
    assert status_of(stack, turn_id) == "running"
    until = time.monotonic() + 90
    while status_of(stack, turn_id) == "running":
        assert time.monotonic() < until, stack.log.read_text()[-4000:]
        time.sleep(0.5)
    assert status_of(stack, turn_id) == "done"
    with call(stack, "resume_turn", turn_id, 0) as replay:
        replay.read_to_end(timeout=30)
        assert len(folded(replay).text.split()) == 155
