"""What agents and tools give that cannot be told: refused where it is given, and nothing hangs."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest

from functions.turns import record, steps
from functions.turns.asking import ModelFailed
from functions.turns.owners import Owners
from functions.turns.program import Agent, StepFailed, Turn
from functions.turns.takeover import Taken
from functions.turns.tools import Call, Policy, tool
from functions.wire import sse
from functions.wire.fold import fold
from functions.wire.text import utf16_length
from tests.support.firestore_proxy import FirestoreProxy, Hold
from tests.support.patience import wait_until
from tests.turns.conftest import Create, settings
from tests.turns.test_asking import own
from tests.turns.test_writer import stored
from tests.wire.test_values import nested

pytestmark = pytest.mark.emulator


@pytest.fixture(name="taken")
def _taken(storage: None, create: Create) -> Taken:
    """A turn of this process, with a lease that lasts the test."""
    assert storage is None
    return create()


@tool(policy=Policy.IDEMPOTENT)
def deep(_call: Call, *, levels: int) -> Any:
    """Returns lists in lists."""
    return nested(levels)


@tool(policy=Policy.IDEMPOTENT)
def take(_call: Call, *, value: Any) -> str:
    """Takes anything."""
    return type(value).__name__


@tool(policy=Policy.IDEMPOTENT)
def echo(_call: Call, *, value: str) -> str:
    """Returns what it was given."""
    return value


@tool(policy=Policy.IDEMPOTENT)
def fails(_call: Call) -> None:
    """Raises."""
    raise RuntimeError


@pytest.mark.parametrize(
    "usage",
    [{("input", "tokens"): 1}, {1: 1}, {"tokens": 10**5000}, {"tokens": 2**53}, {"tokens": True}],
    ids=["tuple", "number", "digits", "unsafe", "bool"],
)
def test_a_usage_that_cannot_be_told_is_refused_at_once(taken: Taken, usage: Any) -> None:
    """Else the terminal event could not be written, and the turn would be run again for ever."""

    def run(turn: Turn) -> None:
        with pytest.raises(ValueError, match="whole numbers by name"):
            turn.conclude(usage=usage)
        turn.conclude(usage={"tokens": 2**53 - 1})

    assert own(taken, run)[-1].data == {"reason": "stop", "usage": {"tokens": 2**53 - 1}}


@pytest.mark.parametrize("wrong", [("model_refused", ValueError("sk-secret")), ("my_code", "no")])
def test_a_failure_that_cannot_be_told_is_the_steps_own(taken: Taken, wrong: Any) -> None:
    """An exception in place of its message, a code of no list: the step fails, the turn goes on."""

    def call(_emit: object) -> None:
        raise ModelFailed(*wrong)

    def run(turn: Turn) -> None:
        with pytest.raises(StepFailed):
            turn.model("ask", {}, call)
        turn.token("on")

    frames = own(taken, run)
    assert [frame.type for frame in frames] == ["token", "done"]
    assert b"secret" not in stored(taken)


@pytest.mark.parametrize("text", [b"bytes", bytearray(b"bytes"), 5, None, ["a"]])
def test_text_that_is_no_text_changes_nothing(taken: Taken, text: Any) -> None:
    """Bytes have a length, too: the next rewind must not cut by one that nobody was told."""

    def run(turn: Turn) -> None:
        with pytest.raises(StepFailed, match="TypeError"):
            turn.model("ask", {}, lambda emit: emit(text))
        with pytest.raises(TypeError, match="a token is a str"):
            turn.token(text)
        turn.token("é🌍")
        raise ModelFailed("model_refused", "no")

    frames = own(taken, run)
    assert [frame.type for frame in frames] == ["token", "error"]
    last = record.reference(taken.turn.key).collection("agent_turn_events").get()[-1].to_dict()
    assert last is not None
    assert last["length"] == utf16_length("é🌍") == 3


@pytest.mark.parametrize("levels", [99, 100, 101, 900, 976, 978, 5000])
def test_a_result_of_any_depth_is_an_outcome(taken: Taken, levels: int) -> None:
    """Up to 100 levels it is told; beyond it an error, though Python could still have written it:
    the effect is recorded, and every later reader of the journal has room to parse it.
    """

    def run(turn: Turn) -> None:
        assert turn.call(deep, levels=levels).status == ("ok" if levels <= 100 else "error")
        turn.token("on")

    frames = own(taken, run)
    assert [frame.type for frame in frames] == ["tool_start", "tool_end", "token", "done"]
    step = steps.load(taken.turn.key, 1)
    assert step is not None
    assert step.finished


@pytest.mark.parametrize("levels", [100, 900, 976, 978, 980, 5000])
def test_arguments_of_any_depth_end_the_turn_clearly(taken: Taken, levels: int) -> None:
    """Also if the agent swallows it: the calls have their positions by then."""

    def run(turn: Turn) -> None:
        try:
            turn.call(take, value=nested(levels))
        except Exception:  # noqa: BLE001 - what careless agents do
            turn.token("(swallowed)")

    (frame,) = own(taken, run)
    assert frame.type == "error"
    assert frame.data["code"] == "bad_step_arguments"


def test_a_tool_gets_what_the_client_is_told(taken: Taken) -> None:
    """Arguments that a model cut between the halves of a surrogate pair: U+FFFD, in both."""

    def run(turn: Turn) -> None:
        assert turn.call(echo, value="a\ud83d").result == "a\ufffd"

    frames = own(taken, run)
    assert frames[0].data["args"] == {"value": "a\ufffd"}


def test_messages_of_any_depth_can_be_read_back(taken: Taken) -> None:
    """A session is read on other threads, deep in a web framework; a tool's result fits in."""

    def run(turn: Turn) -> None:
        turn.remember([{"parts": [{"content": nested(100)}]}])
        with pytest.raises(ValueError, match="deep"):
            turn.remember([nested(500)])

    assert [frame.type for frame in own(taken, run)] == ["done"]


@pytest.mark.parametrize("name", ["x\ud800", "", "x" * 201])
def test_a_tools_name_can_be_recorded(name: str) -> None:
    """Or it is no tool: its step could not be stored, nor its event told."""

    def run(_call: Call) -> None:
        """Does nothing."""

    run.__name__ = name
    with pytest.raises(ValueError, match="a name of 1 to 200"):
        tool()(run)


def test_a_tools_name_cannot_forge_a_frame(taken: Taken) -> None:
    """Whatever it holds, it is text in one field of one event."""
    name = 'x\ndata: {"forged":1}\n\nid: 999\u2028é'

    def named(_call: Call) -> str:
        """Has an odd name."""
        return "ok"

    def run(turn: Turn) -> None:
        turn.call(tool()(named))

    named.__name__ = name
    frames = own(taken, run)
    assert [frame.type for frame in frames] == ["tool_start", "tool_end", "done"]
    assert {frame.data["tool"] for frame in frames[:2]} == {name}
    assert fold(frames).cursor == 3


class MuteError(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        """Raises."""
        raise RuntimeError


@pytest.mark.parametrize("error", [ValueError("\ud83d"), MuteError()])
def test_an_error_that_cannot_be_logged_ends_the_turn_all_the_same(
    taken: Taken, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the text of exceptions is logged, as on the Emulator Suite."""
    monkeypatch.setenv("LOG_EXCEPTION_TEXT", "true")

    def run(turn: Turn) -> None:
        turn.token("a")
        raise error

    assert own(taken, run)[-1].data["code"] == "agent_failed"


class Closed(io.TextIOBase):
    """A log that nobody reads any more."""

    def write(self, _text: str) -> int:
        """Raises."""
        raise BrokenPipeError


def test_a_turn_goes_on_though_nobody_reads_the_log(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a tool that fails, and what a turn logs at its end."""

    def run(turn: Turn) -> None:
        assert turn.call(fails).status == "error"
        turn.token("on")

    with monkeypatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, Closed())
        frames = own(taken, run)
    assert [frame.type for frame in frames] == ["tool_start", "tool_end", "token", "done"]


@pytest.mark.parametrize("lost", [True, False], ids=["lease", "time"])
def test_a_transaction_that_begins_too_late_does_not_call_its_tool(
    faulty_storage: FirestoreProxy, create: Create, *, lost: bool
) -> None:
    """The lease was lost, or the tool's time was over, while storage took its time to begin."""
    called: list[int] = []
    held = threading.Event()

    @tool(policy=Policy.TRANSACTIONAL, timeout_seconds=20 if lost else 0.5)
    def book(_call: Call) -> None:
        called.append(1)

    def run(turn: Turn) -> None:
        turn.call(book)

    taken = create()
    rule = faulty_storage.inject("BeginTransaction", Hold(held))
    Owners(lambda: Agent(run), settings()).own(taken)
    wait_until(lambda: any(call.rule is rule for call in faulty_storage.calls))
    if lost:
        taken.lease.lose("somebody else has it")
    else:
        wait_until(lambda: sse.ends_turn(stored(taken)))
    held.set()
    ours = {"transaction", "owner"}
    wait_until(lambda: not any(one.name in ours for one in threading.enumerate()))
    assert called == []
