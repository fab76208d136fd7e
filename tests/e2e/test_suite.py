"""A turn on the Emulator Suite, called as a page of the Hosting emulator would call it."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest

from dev import processes, suite
from dev.project import ProblemError
from dev.suite import Suite
from functions import firestore
from functions.turns import record
from functions.wire import sse
from functions.wire.fold import Fold
from tests.support.client import asked_again, error_of, folded, headers, new_turn_id
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.server import SOON_SECONDS
from tests.support.sse import RawStream

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(400)]

PROMPT = "Tell me about leases rate=15 silence=1 words=150"
"""Ten seconds: whatever befalls it befalls it in its midst, on a busy machine, too."""


@pytest.fixture(scope="module")
def stack(firestore_emulator: str) -> Iterator[Suite]:
    """Functions, Firestore, Auth, Hosting and Tasks, by the pinned firebase-tools."""
    assert firestore_emulator  # says in one line why not, where there is none
    ports = suite.choose_ports()
    origin = f"http://127.0.0.1:{ports['hosting']}"
    settings = {"LEASE_SECONDS": SOON_SECONDS, "ALLOWED_ORIGINS": origin}
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
    """A call of a page: its origin, its user, a fresh App Check token for each attempt."""

    def attempt() -> RawStream:
        given = headers(turn_id, cursor, uid="a-reader", Origin=stack.hosting)
        if body is not None:
            given["Content-Type"] = "application/json"
        method = "GET" if body is None else "POST"
        return RawStream(stack.function(function), method, given, body)

    return asked_again(attempt)


def start(stack: Suite, turn_id: str) -> RawStream:
    """Start the demo agent."""
    return call(stack, "start_turn", turn_id, body=json.dumps({"prompt": PROMPT}).encode())


def container_of(stack: Suite, function: str) -> list[int]:
    """The processes that serve a function now."""
    here = set(processes.marked(stack.mark))
    return [pid for pid in processes.carrying("FUNCTION_TARGET", function) if pid in here]


def kill(stack: Suite, function: str) -> None:
    """SIGKILL to the containers of a function."""
    for pid in container_of(stack, function):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_page_starts_is_cut_and_resumes_in_another_process(stack: Suite) -> None:
    """It misses nothing and gets nothing twice, through the Functions emulator."""
    turn_id, state = new_turn_id(), Fold()
    with start(stack, turn_id) as stream:
        assert stream.status == 200
        assert stream.headers["access-control-allow-origin"] == stack.hosting
        stream.read_until(40)
        stream.abort()
        folded(stream, into=state)
    with call(stack, "resume_turn", turn_id, state.cursor) as stream:
        stream.read_until(50)
        stream.abort()
        folded(stream, into=state)
    with call(stack, "resume_turn", turn_id, state.cursor) as stream:
        stream.read_to_end()
        folded(stream, into=state)
    assert state.ended is not None
    with call(stack, "resume_turn", turn_id, 0) as replay:
        replay.read_to_end()
        assert folded(replay).text == state.text
    assert len(state.text.split()) == 155
    assert state.rewinds == 0


def test_tokens_arrive_as_they_are_made(stack: Suite) -> None:
    """The Functions emulator holds nothing back: some are there while the turn still runs."""
    turn_id = new_turn_id()
    with start(stack, turn_id) as stream:
        stream.read_until(5)
        assert status_of(stack, turn_id) == "running"
        stream.read_to_end()
        assert stream.body.startswith(sse.PING)


def test_a_killed_container_costs_nothing(stack: Suite) -> None:
    """SIGKILL to the container that runs the turn; a follower in another finishes it."""
    turn_id = new_turn_id()
    with start(stack, turn_id) as cut:
        cut.read_until(20)
        with call(stack, "resume_turn", turn_id) as follower:
            follower.read_until(20)
            kill(stack, "start_turn")
            follower.read_to_end()
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
    with urllib.request.urlopen(stack.hosting + "/", timeout=PATIENCE_SECONDS) as page:
        assert b"<html" in page.read().lower()


def status_of(stack: Suite, turn_id: str) -> str:
    """A turn's stored status, read as an administrator, past every function."""
    key = record.turn_key("uid:a-reader", turn_id)
    url = (
        f"http://{stack.host('firestore')}/v1/projects/{stack.project}/databases/(default)"
        f"/documents/{firestore.TURNS}/{key}"
    )
    request = urllib.request.Request(url, headers={"Authorization": "Bearer owner"})
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return str(json.load(answer)["fields"]["status"]["stringValue"])


def looks_scheduled(stack: Suite) -> float:
    """How many tasks the Tasks emulator was given lately; by its own measure."""
    with urllib.request.urlopen(
        f"http://{stack.host('tasks')}/queueStats", timeout=PATIENCE_SECONDS
    ) as answer:
        return sum(float(queue["tasksAdded"]) for queue in json.load(answer).values())


def test_an_abandoned_turn_finishes_by_itself(stack: Suite) -> None:
    """Its client is gone, its container killed: the Tasks emulator has it finished."""
    turn_id, before = new_turn_id(), looks_scheduled(stack)
    with start(stack, turn_id) as stream:
        wait_until(lambda: looks_scheduled(stack) > before)
        kill(stack, "start_turn")
        stream.abort()
    assert status_of(stack, turn_id) == "running"
    until = time.monotonic() + 200
    while status_of(stack, turn_id) == "running":
        assert time.monotonic() < until, stack.log.read_text()[-4000:]
        time.sleep(0.5)
    assert status_of(stack, turn_id) == "done"
    with call(stack, "resume_turn", turn_id, 0) as replay:
        replay.read_to_end()
        assert len(folded(replay).text.split()) == 155
