"""What agents do wrong, and what then holds: a clear event, no secret, no hang."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Serve
from tests.support.client import error_of, folded, new_turn_id, resume, start
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

SECRET = "sk-secret-1234"


@pytest.fixture
def starter(serve: Serve) -> FunctionServer:
    """A process of `start_turn`."""
    return serve("start_turn")


def ended(stream: RawStream) -> tuple[str, Any]:
    """The last event of a stream that was read to its end."""
    stream.read_to_end()
    last = stream.events()[-1]
    return last.event, last.data


def test_an_agent_that_fails_at_once_is_a_json_error(serve: Serve) -> None:
    """With CORS; the turn has ended, and a resume tells the same as an event."""
    # At once is 0.2 s, which a busy machine has not.
    starter, turn_id = serve("start_turn", FIRST_EVENT_SECONDS="30"), new_turn_id()
    with start(starter, turn_id, [["raise", SECRET]]) as stream:
        assert stream.status == 502
        error = error_of(stream)
        assert error["code"] == "agent_failed"
        assert SECRET not in stream.raw.decode()
    with resume(serve("resume_turn"), turn_id) as again:
        kind, data = ended(again)
        assert kind == "error"
        assert data == error
    assert starter.line(code="agent_failed", correlationId=error["correlationId"])
    assert SECRET not in starter.output()


def test_an_agent_that_fails_later_ends_with_an_error_event(
    serve: Serve, starter: FunctionServer
) -> None:
    """What it said stays; the same on resume."""
    turn_id = new_turn_id()
    with start(starter, turn_id, [["count", 1, 3, 0], ["sleep", 0.5], ["raise", SECRET]]) as stream:
        kind, data = ended(stream)
        assert (kind, data["code"]) == ("error", "agent_failed")
        assert folded(stream).text == "1 2 3 "
        assert SECRET not in stream.body.decode()
    with resume(serve("resume_turn"), turn_id, 3) as again:
        assert ended(again) == (kind, data)


def test_pings_flow_while_a_model_is_to_be_asked_again(serve: Serve, tmp_path: Path) -> None:
    """What an attempt said is withdrawn at once; then the wire is silent, but alive (X2)."""
    path = str(tmp_path / "asked")
    inner = [["say", "half of it"], ["unavailable", path, 1, 6], ["say", ", all of it"]]
    starter = serve("start_turn", HEARTBEAT_SECONDS="0.2")
    with start(starter, new_turn_id(), [["say", "Well: "], ["model", "m", inner, 1]]) as stream:
        assert ended(stream)[0] == "done"
        assert folded(stream).text == "Well: half of it, all of it[m: 1]"
        kinds = [getattr(one, "event", "ping") for one in stream.frames()]
    rewinds = [at for at, kind in enumerate(kinds) if kind == "rewind"]
    assert len(rewinds) == 1
    assert kinds[rewinds[0] + 1] == "ping"
    assert Path(path).read_text() == "asked\n" * 2
    assert SECRET not in starter.output()
    assert "sk-secret" not in starter.output()


def test_a_container_that_dies_at_a_further_attempt_loses_nothing(
    serve: Serve, tmp_path: Path, gate: Gate
) -> None:
    """The next owner asks anew; every client ends with its text."""
    path, died = str(tmp_path / "asked"), str(tmp_path / "died")
    inner = [["say", "half"], ["unavailable", path, 1, 0.1], gate.action, ["die once", died]]
    inner += [["say", " whole"]]
    turn_id = new_turn_id()
    starter = serve("start_turn")
    with start(starter, turn_id, [["say", "Well: "], ["model", "m", inner, 1]]) as stream:
        stream.read_until("rewind")
        gate.open()
        stream.read_to_end()
        seen = folded(stream)
    lapse_turn(turn_id)
    with resume(serve("resume_turn"), turn_id, seen.cursor) as again:
        again.read_to_end()
        assert folded(again, into=seen).text == "Well: half whole[m: 1]"
    assert Path(path).read_text() == "asked\n" * 3


def test_a_failed_model_step_is_an_outcome_the_agent_can_handle(starter: FunctionServer) -> None:
    """It learns the position and the kind of error, and may go on."""
    with start(starter, new_turn_id(), [["model", "m", [["raise", SECRET]], 1]]) as stream:
        assert ended(stream)[0] == "done"
        assert folded(stream).text == '[m: "failed 1 SecretError"]'


def test_an_agent_cannot_escape_with_an_exception_of_another_kind(
    starter: FunctionServer,
) -> None:
    """Not even one that is no Exception makes the turn run again, or shows its text."""
    with start(starter, new_turn_id(), [["say", "a"], ["raise hard", SECRET]]) as stream:
        kind, data = ended(stream)
        assert (kind, data["code"]) == ("error", "agent_failed")
    assert SECRET not in starter.output()
    assert starter.log_lines()


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        ([["odd result", "nan"]], "bad_step_result"),
        ([["model", "outer", [["model", "inner", [], 1]], 2]], "nested_step"),
        ([["model", "no name \ud800", [], 1]], "bad_step"),
        ([["model", "", [], 1]], "bad_step"),
    ],
)
def test_a_step_that_cannot_be_recorded_ends_the_turn_though_the_agent_swallows_it(
    starter: FunctionServer, inner: list[object], code: str
) -> None:
    """Going on would leave a hole in the ledger: a re-run would tell and call things twice."""
    script = [["say", "a"], ["swallow", inner], ["model", "next", [["say", "b"]], 1]]
    with start(starter, new_turn_id(), script) as stream:
        kind, data = ended(stream)
        assert (kind, data["code"]) == ("error", code)
        assert "b" not in folded(stream).text


def test_nothing_follows_the_end_though_a_thread_talks_on(
    serve: Serve, starter: FunctionServer
) -> None:
    """Neither on the wire nor in the journal."""
    turn_id = new_turn_id()
    with start(starter, turn_id, [["straggle"], ["sleep", 0.5], ["say", "x"]]) as stream:
        assert ended(stream)[0] == "done"
    time.sleep(0.5)
    with resume(serve("resume_turn"), turn_id) as again:
        assert ended(again)[0] == "done"
        assert folded(again).text == folded(stream).text


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("nan", "bad_step_result"),
        ("set", "bad_step_result"),
        ("bytes", "bad_step_result"),
        ("huge", "step_result_too_large"),
    ],
)
def test_a_result_that_cannot_be_recorded_ends_the_turn_clearly(
    starter: FunctionServer, kind: str, code: str
) -> None:
    """The message says which step and why."""
    with start(
        starter, new_turn_id(), [["say", "a"], ["sleep", 0.3], ["odd result", kind]]
    ) as stream:
        event, data = ended(stream)
        assert (event, data["code"]) == ("error", code)
        assert "step 1" in data["message"]


@pytest.mark.parametrize("kind", ["keys", "tuple"])
def test_a_result_reaches_the_agent_as_json_gives_it_back(
    starter: FunctionServer, kind: str
) -> None:
    """The same live as in a re-run."""
    with start(starter, new_turn_id(), [["odd result", kind]]) as stream:
        assert ended(stream)[0] == "done"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["\ud83d", "\ude00"], "😀"),
        (["\ud83d"], "\ufffd"),
        (["a\u2028b\u2029c\u0085d\x0be\x1cf"], "a\u2028b\u2029c\u0085d\x0be\x1cf"),
        (["a\rid: 999\rdata: z", "\n\nevent: done\n\n"], "a\rid: 999\rdata: z\n\nevent: done\n\n"),
        (["那🌍é", "", "\x00"], "那🌍é\x00"),
    ],
)
def test_any_text_arrives_as_it_was_said(
    serve: Serve, starter: FunctionServer, parts: list[str], text: str
) -> None:
    """Live and replayed: one string, no forged frame, `done` at the end."""
    turn_id = new_turn_id()
    with start(starter, turn_id, [["say", part] for part in parts]) as stream:
        assert ended(stream) == ("done", {"reason": "stop"})
        assert folded(stream).text == text
    with resume(serve("resume_turn"), turn_id) as again:
        assert ended(again)[0] == "done"
        assert folded(again).text == text


def test_text_that_is_too_long_for_one_event_becomes_several(
    serve: Serve, starter: FunctionServer
) -> None:
    """No event is ever split, and 400,000 emoji are no trouble for what comes after them."""
    turn_id = new_turn_id()
    script = [["say times", "x", 100_000], ["say times", "🌍", 400_000], ["say", "end"]]
    with start(starter, turn_id, script) as stream:
        assert ended(stream)[0] == "done"
        assert folded(stream).text == "x" * 100_000 + "🌍" * 400_000 + "end"
    with resume(serve("resume_turn"), turn_id) as again:
        assert ended(again)[0] == "done"
        assert folded(again).text == folded(stream).text


def test_many_tokens_in_one_flush_keep_their_order(serve: Serve, starter: FunctionServer) -> None:
    """5,000 at once: bounded chunks, all of them, in order."""
    turn_id = new_turn_id()
    expected = "".join(f"{n} " for n in range(1, 5001))
    with start(starter, turn_id, [["count", 1, 5000, 0]]) as stream:
        ended(stream)
        assert folded(stream).text == expected
    with resume(serve("resume_turn"), turn_id) as again:
        ended(again)
        assert folded(again).text == expected


def test_the_window_is_never_left(starter: FunctionServer) -> None:
    """25,000 tokens as fast as they go: the agent waits for the journal, and all arrive (N2)."""
    with start(starter, new_turn_id(), [["count", 1, 25_000, 0]]) as stream:
        assert stream.read_to_end() == "complete"
        assert len(stream.events()) == 25_001


def test_logs_are_structured_and_tell_no_text(starter: FunctionServer) -> None:
    """Each line carries the turn, the run, the epoch and the request; no prompt, no token."""
    turn_id = new_turn_id()
    with start(starter, turn_id, [["say", "very private words"]]) as stream:
        ended(stream)
    assert starter.line(message="turn started")
    last = starter.line(message="turn ended")
    assert "private" not in starter.output()
    assert {"severity", "turn", "run", "epoch", "correlationId"} <= set(last)


@pytest.mark.parametrize("as_on_google_cloud", ["", "true"])
def test_what_fails_where_nobody_looks_is_logged_like_everything_else(
    serve: Serve, as_on_google_cloud: str
) -> None:
    """In an agent's own thread or task, as an object is cleared away, and what a library says or
    warns of: one line each, with no text of an exception.
    """
    server = serve("start_turn", LOG_EXECUTION_ID=as_on_google_cloud)
    with start(server, new_turn_id(), [["strays"], ["say", "on"]]) as stream:
        stream.read_to_end()
        assert folded(stream).text == "on"
    assert "sk-secret" not in server.output()
    said = {
        line["message"]: (line["severity"], line.get("logger"), line.get("exception"))
        for line in server.log_lines()
    }
    assert said["a thread broke down"] == ("ERROR", None, "SecretError")
    assert said["Task exception was never retrieved"] == ("ERROR", "asyncio", "SecretError")
    assert said["too many redirects"] == ("WARNING", "a.library", None)
    assert said["an exception was ignored"] == ("ERROR", None, "SecretError")
    assert said["Pydantic serializer warnings:"] == ("WARNING", None, None)


def test_logs_carry_the_trace_of_the_request(starter: FunctionServer) -> None:
    """Cloud Logging shows the lines of a request together by it."""
    trace = "0123456789abcdef0123456789abcdef"
    with RawStream(starter.url, "GET", {"X-Cloud-Trace-Context": f"{trace}/1;o=1"}) as stream:
        assert error_of(stream)["correlationId"] == trace
    line = starter.line(code="method_not_allowed")
    assert line["logging.googleapis.com/trace"] == f"projects/demo-agent-turns/traces/{trace}"
    assert json.dumps(line)
