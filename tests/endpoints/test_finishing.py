"""Turns that finish with nobody connected: what a task of Cloud Tasks does."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import main
from dev.ports import free_port
from dev.project import LOCAL_PROJECT
from functions.settings import REGION
from functions.turns import record
from functions.turns.queue import FUNCTION, REQUEST_SECONDS
from functions.turns.runner import MAX_ATTEMPTS
from tests.conftest import Serve
from tests.support.client import decide, error_of, folded, key_of, new_turn_id, resume, start
from tests.support.gate import Gate
from tests.support.google import PROJECT as GOOGLES
from tests.support.google import Google
from tests.support.lapse import lapse_turn, load
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.queue import TaskQueue
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

LOOK_SECONDS = 60
"""How soon a turn is looked at with the lease of these tests."""


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    """A queue that keeps its tasks."""
    with TaskQueue() as queue:
        yield queue


def talk(gate: Gate) -> list[list[Any]]:
    """A script with a step and a text, of which half comes after the gate."""
    said: list[list[Any]] = [["count", 6, 10, 0], gate.action, ["count", 11, 60, 0]]
    return [["model", "one", [["count", 1, 5, 0]], 1], *said]


def post(server: FunctionServer, body: bytes, content: str = "application/json") -> RawStream:
    """Send what Cloud Tasks sends."""
    return RawStream(server.url, "POST", {"Content-Type": content}, body)


def dispatch(server: FunctionServer, turn_id: str, *, seconds: float = 0) -> str:
    """Send a task that was due `seconds` from now; what it came to."""
    body = {"data": {"turn": key_of(turn_id), "due": int(time.time() + seconds)}}
    with post(server, json.dumps(body).encode()) as answer:
        answer.read_to_end()
        assert answer.status == 200, answer.raw
        return str(json.loads(answer.body)["result"])


def abandon(serve: Serve, script: list[Any], **environ: str) -> str:
    """Start a turn, kill its container and leave; its id, once nobody has it."""
    owner, turn_id = serve("start_turn", **environ), new_turn_id()
    with start(owner, turn_id, script) as stream:
        stream.read_until(7)
        owner.kill()
    lapse_turn(turn_id)
    return turn_id


def test_a_turn_that_nobody_owns_is_finished(serve: Serve, queue: TaskQueue, gate: Gate) -> None:
    """The request lasts until the turn has ended: a container has no CPU after it. For how long a
    client's stream may last is no matter of its.
    """
    turn_id = abandon(serve, talk(gate))
    gate.open()
    settings = {"CLOUD_TASKS_EMULATOR_HOST": queue.address, "RESPONSE_SECONDS": "30"}
    assert dispatch(serve("finishturn", **settings), turn_id) == "over"
    assert load(key_of(turn_id)).status == record.DONE
    with resume(serve("resume_turn"), turn_id, 0) as stream:
        stream.read_to_end()
        told = folded(stream)
    assert told.text == "1 2 3 4 5 [one: 1]" + "".join(f"{n} " for n in range(6, 61))


def test_again_and_again_until_it_has_ended(
    serve: Serve, queue: TaskQueue, tmp_path: Path, gate: Gate
) -> None:
    """The finishing container is killed, too: its task, which it never answered, comes again."""
    calls = tmp_path / "calls"
    tools = ["tools", ["once", {"path": str(calls)}]]
    turn_id = abandon(serve, [tools, ["count", 1, 10, 0], gate.action, ["count", 11, 60, 0]])
    settings = {"CLOUD_TASKS_EMULATOR_HOST": queue.address}
    killed = serve("finishturn", **settings)
    body = {"data": {"turn": key_of(turn_id), "due": int(time.time())}}
    epoch = load(key_of(turn_id)).holder.epoch
    with post(killed, json.dumps(body).encode()):
        wait_until(lambda: load(key_of(turn_id)).holder.epoch > epoch)
        killed.kill()
    lapse_turn(turn_id)
    gate.open()
    assert dispatch(serve("finishturn", **settings), turn_id) == "over"
    assert load(key_of(turn_id)).status == record.DONE
    assert len(calls.read_text().splitlines()) == 1


def test_a_turn_without_progress_ends_with_an_error(
    serve: Serve, queue: TaskQueue, gate: Gate
) -> None:
    """An agent that kills every container would be taken over for ever."""
    turn_id = abandon(serve, talk(gate))
    record.reference(key_of(turn_id)).update(
        {"lease.epoch": load(key_of(turn_id)).holder.epoch + MAX_ATTEMPTS}
    )
    lapse_turn(turn_id)
    assert dispatch(serve("finishturn", CLOUD_TASKS_EMULATOR_HOST=queue.address), turn_id) == "over"
    assert load(key_of(turn_id)).status == record.ERROR


def test_a_turn_that_is_owned_is_looked_at_later(
    serve: Serve, queue: TaskQueue, gate: Gate
) -> None:
    """Nothing is taken from its owner; the next task is there before this one is answered."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    finisher = serve("finishturn", CLOUD_TASKS_EMULATOR_HOST=queue.address)
    with start(owner, turn_id, [["count", 1, 10, 0], gate.action, ["count", 11, 40, 0]]) as stream:
        stream.read_until(1)
        sent_at = time.time()
        assert dispatch(finisher, turn_id) == "later"
        (task,) = queue.tasks(1)
        assert task.turn == key_of(turn_id)
        assert task.deadline == f"{REQUEST_SECONDS}s"
        assert LOOK_SECONDS - 1 < task.at - sent_at < LOOK_SECONDS + PATIENCE_SECONDS
        assert -2 < task.at - task.body["data"]["due"] < PATIENCE_SECONDS
        gate.open()
        stream.read_to_end()
        assert folded(stream).rewinds == 0
    assert dispatch(finisher, turn_id) == "over"


def test_a_turn_that_is_not_there_is_over(serve: Serve, queue: TaskQueue) -> None:
    """Deleted, or past its retention."""
    finisher = serve("finishturn", CLOUD_TASKS_EMULATOR_HOST=queue.address)
    assert dispatch(finisher, new_turn_id()) == "over"


def test_an_approval_that_nobody_gives_expires_with_nobody_there(
    serve: Serve, queue: TaskQueue, tmp_path: Path
) -> None:
    """A waiting turn is looked at when the time is over, and not before."""
    turn_id = new_turn_id()
    script = [["tools", ["hasty", {"path": str(tmp_path / "calls")}]], ["say", "end"]]
    with start(serve("start_turn"), turn_id, script) as stream:
        stream.read_to_end()
    turn = load(key_of(turn_id))
    assert turn.status == record.WAITING
    assert turn.waiting_until is not None
    finisher = serve("finishturn", CLOUD_TASKS_EMULATOR_HOST=queue.address)
    if dispatch(finisher, turn_id) == "later":  # else this machine was too slow to be early
        (task,) = queue.tasks(1)
        assert 0 < task.at - turn.waiting_until.timestamp() < LOOK_SECONDS / 2
        lapse_turn(turn_id)
        assert dispatch(finisher, turn_id) == "over"
    assert load(key_of(turn_id)).status == record.DONE
    with resume(serve("resume_turn"), turn_id, 0) as stream:
        stream.read_to_end()
        assert "[expired" in folded(stream).text


def test_two_tasks_at_once_are_one_run(
    serve: Serve, queue: TaskQueue, tmp_path: Path, gate: Gate
) -> None:
    """Cloud Tasks may deliver twice."""
    calls = tmp_path / "calls"
    script = [["count", 1, 10, 0], gate.action, ["effect", str(calls)], ["say", "end"]]
    turn_id = abandon(serve, script)
    gate.open()
    finisher = serve("finishturn", CLOUD_TASKS_EMULATOR_HOST=queue.address)
    body = json.dumps({"data": {"turn": key_of(turn_id), "due": int(time.time())}}).encode()
    with post(finisher, body) as one, post(finisher, body) as two:
        one.read_to_end()
        two.read_to_end()
        assert (one.status, two.status) == (200, 200)
    assert load(key_of(turn_id)).status == record.DONE
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "content", "status"),
    [
        (b"", "application/json", 200),
        (b"{", "application/json", 200),
        (b"[]", "application/json", 200),
        (b'{"data": 17}', "application/json", 200),
        (b'{"data": {"turn": "../x", "due": 1}}', "application/json", 200),
        (b'{"data": {"turn": "' + b"0" * 40 + b'"}}', "application/json", 200),
        (b'{"data": {"turn": "' + b"0" * 40 + b'", "due": 1e99}}', "application/json", 200),
        (b'{"data": {"turn": "' + b"0" * 40 + b'", "due": 1}}', "text/plain", 200),
        (b"x" * 300_000, "application/json", 200),
    ],
)
def test_a_task_without_sense_is_dropped(
    serve: Serve, body: bytes, content: str, status: int
) -> None:
    """Anything but 2xx would bring it back; never a 500, and not a word of it in the log."""
    server = serve("finishturn")
    with post(server, body, content) as answer:
        answer.read_to_end()
        assert answer.status == status
    assert all("../x" not in json.dumps(line) for line in server.log_lines())


def test_a_task_that_comes_early_is_sent_again(serve: Serve, queue: TaskQueue) -> None:
    """The Tasks emulator sends each task at once: its back-off is what waits."""
    finisher = serve("finishturn", CLOUD_TASKS_EMULATOR_HOST=queue.address)
    body = {"data": {"turn": key_of(new_turn_id()), "due": int(time.time() + 60)}}
    with post(finisher, json.dumps(body).encode()) as answer:
        assert (answer.status, error_of(answer)["code"]) == (425, "too_early")


def test_a_new_turn_and_a_decision_schedule_a_look(
    serve: Serve, queue: TaskQueue, tmp_path: Path
) -> None:
    """One each, at the queue of the deployed function."""
    environ = {"CLOUD_TASKS_EMULATOR_HOST": queue.address}
    turn_id, sent_at = new_turn_id(), time.time()
    script = [["tools", ["refund", {"path": str(tmp_path / "calls")}]], ["say", "end"]]
    with start(serve("start_turn", **environ), turn_id, script) as stream:
        stream.read_to_end()
    (task,) = queue.tasks(1)
    assert task.turn == key_of(turn_id)
    assert task.path == f"/projects/{LOCAL_PROJECT}/locations/{REGION}/queues/{FUNCTION}/tasks"
    assert LOOK_SECONDS - 1 < task.at - sent_at < LOOK_SECONDS + PATIENCE_SECONDS
    with decide(serve("run_tool_step", **environ), turn_id, 1, "approve") as stream:
        stream.read_to_end()
        assert folded(stream).ended is not None
    assert [task.turn for task in queue.tasks(2)] == [key_of(turn_id)] * 2


def warned_once(server: FunctionServer) -> str:
    """Three turns run to their end with one warning; what it says is the cause."""
    for _ in range(3):
        with start(server, new_turn_id(), [["count", 1, 5, 0]]) as stream:
            stream.read_to_end()
            assert folded(stream).ended is not None
    server.line(severity="WARNING")
    (line,) = [line for line in server.log_lines() if line["severity"] == "WARNING"]
    assert "finish without a client" in line["message"]
    return str(line["cause"])


def test_as_deployed_a_task_is_signed_by_the_service_account(serve: Serve, tmp_path: Path) -> None:
    """Cloud Run lets nobody in but who has its role: Cloud Tasks, as the account that scheduled."""
    with Google() as google:
        environ = {**google.environ(tmp_path / "account"), "REQUIRE_AUTH": "true"}
        given = {
            "X-Firebase-AppCheck": google.app_check_token(),
            "Authorization": f"Bearer {google.id_token()}",
            "X-Stream-Turn-Id": new_turn_id(),
            "Content-Type": "application/json",
        }
        body = json.dumps({"prompt": "[]"}).encode()
        with RawStream(serve("start_turn", **environ).url, "POST", given, body) as stream:
            stream.read_to_end()
            assert stream.status == 200
        wait_until(lambda: bool(google.tasks))
        (task,) = google.tasks
    asked = task["httpRequest"]
    assert asked["url"] == f"https://us-central1-{GOOGLES}.cloudfunctions.net/{FUNCTION}"
    assert asked["oidcToken"] == {"serviceAccountEmail": "functions@example.com"}


@pytest.mark.parametrize(
    ("status", "cause"), [(403, "PermissionDeniedError"), (404, "NotFoundError")]
)
def test_without_a_queue_everything_else_works(serve: Serve, status: int, cause: str) -> None:
    """The API is not enabled, or a permission is missing: a warning, no error."""
    with TaskQueue(status=status) as queue:
        server = serve("start_turn", CLOUD_TASKS_EMULATOR_HOST=queue.address)
        assert warned_once(server) == cause


def test_with_a_queue_that_is_down_everything_else_works(serve: Serve) -> None:
    """Nothing listens there."""
    server = serve("start_turn", CLOUD_TASKS_EMULATOR_HOST=f"127.0.0.1:{free_port()}")
    assert warned_once(server) == "UnavailableError"


def test_an_emulator_suite_without_tasks_never_calls_google(serve: Serve) -> None:
    """It says so once."""
    assert warned_once(serve("start_turn")) == "no Tasks emulator"


def test_the_deployed_function_is_the_queue_that_is_asked() -> None:
    """Its name, without an underscore: a queue's may have none; its place; no public trigger."""
    declared = main.finishturn.__firebase_endpoint__  # type: ignore[attr-defined]  # the SDK's mark
    assert declared.entryPoint == main.finishturn.__name__ == FUNCTION
    assert re.fullmatch("[A-Za-z0-9-]{1,100}", FUNCTION)
    assert declared.region == [REGION]
    assert declared.timeoutSeconds == REQUEST_SECONDS
    assert declared.httpsTrigger is None
    assert declared.taskQueueTrigger is not None
