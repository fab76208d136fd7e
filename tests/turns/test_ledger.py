"""Tools that do what no tool should: what becomes of their steps, in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator

from functions import firestore
from functions.turns import steps, transact
from functions.turns.owners import Owners
from functions.turns.program import Agent, Outcome, Turn
from functions.turns.takeover import Taken
from functions.turns.tools import Call, Happened, Policy, Tool, ToolError, tool
from functions.turns.transact import NO_THREAD
from functions.wire import sse
from tests.support.firestore_proxy import Answer, FirestoreProxy, touches
from tests.support.leftover import stay
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import Create, lapse, load, settings
from tests.turns.test_writer import stored

pytestmark = pytest.mark.emulator


def owning(run: Callable[[Turn], object]) -> Owners:
    """A process that serves this agent."""

    def agent(turn: Turn) -> None:
        run(turn)

    return Owners(lambda: Agent(agent), settings())


def own(taken: Taken, run: Callable[[Turn], object]) -> list[sse.Frame]:
    """Run a turn to its end; the frames of its journal."""
    owning(run).own(taken)
    wait_until(lambda: load(taken).finished)
    return list(sse.decode(stored(taken)))


@tool()
def any_of(_call: Call, *, value: Any) -> Any:
    """What it is given."""
    return value


@pytest.fixture(name="taken")
def _taken(storage: None, create: Create) -> Taken:
    """A turn of this process, with a lease that lasts the test."""
    assert storage is None
    return create()


def test_a_result_that_fails_as_it_is_read_is_an_outcome(taken: Taken) -> None:
    """The call was made: the model learns that, and the turn goes on."""

    class Lazy(dict[str, Any]):
        def items(self) -> Any:
            raise LookupError("detached")

    @tool
    def row(_call: Call) -> Any:
        return Lazy(a=1)

    outcomes: list[Outcome] = []
    own(taken, lambda turn: outcomes.append(turn.call(row)))
    assert [outcome.status for outcome in outcomes] == ["error"]
    assert outcomes[0].result["message"].endswith("its effect stays")


def test_a_tool_that_changes_its_arguments_changes_nothing_else(taken: Taken) -> None:
    """The agent goes on with what it gave: a re-run, which skips the call, asks for the same."""

    @tool()
    def greedy(_call: Call, *, items: Any) -> int:
        items.append("more")
        return len(items)

    def run(turn: Turn) -> None:
        items: list[str] = []
        turn.call(greedy, items=items)
        turn.call(any_of, value=items)

    ends = [frame.data["result"] for frame in own(taken, run) if frame.type == "tool_end"]
    assert ends == [1, []]


def _broken(value: Any) -> Any:
    return value["missing"]


def test_a_tool_whose_error_has_no_words_has_failed(taken: Taken) -> None:
    """Its step does not wait until its time is over, to be in doubt then."""

    class Wordless(ToolError):
        def __str__(self) -> str:
            return str(self.args[1])

    @tool
    def pay(_call: Call) -> None:
        raise Wordless

    end = own(taken, lambda turn: turn.call(pay))[-2].data
    assert end["status"] == "error"
    assert end["result"] == {"message": "the tool failed: IndexError"}


@pytest.mark.parametrize("args", [{"n": ["x"] * 60_000}, {"x" * 200_000: 1}])
def test_much_that_is_wrong_is_told_in_few_words(taken: Taken, args: dict[str, Any]) -> None:
    """A model that is told of each item would read half a megabyte; told of none, that the tool,
    which was never called, took effect.
    """

    @tool
    def add(_call: Call, *, n: list[int]) -> int:
        return sum(n)

    end = own(taken, lambda turn: turn.call(add, **args))[-2].data
    assert end["status"] == "error"
    assert end["result"]["message"].startswith("add: ")
    assert len(end["result"]["message"]) < 1100


def test_arguments_whose_check_breaks_down_are_an_outcome(taken: Taken) -> None:
    """They are the model's: it may do better, and the tool is not called."""

    @tool
    def shout(_call: Call, *, word: Annotated[str, BeforeValidator(_broken)]) -> str:
        return word

    outcomes: list[Outcome] = []
    own(taken, lambda turn: outcomes.append(turn.call(shout, word={})))
    assert [outcome.status for outcome in outcomes] == ["error"]
    assert outcomes[0].result == {"message": "shout: the arguments cannot be checked"}


def _exit(_call: Call) -> Happened | None:
    raise SystemExit(1)


def _mistaken(_call: Call) -> Any:
    return {"ok": True}


def _silent(_call: Call) -> Happened | None:
    stay()
    return Happened("late")


@pytest.mark.parametrize("reconcile", [_exit, _mistaken, _silent])
def test_what_reconcile_cannot_say_leaves_the_step_in_doubt(
    taken: Taken, reconcile: Callable[..., Any]
) -> None:
    """It raises, answers what it may not, or says nothing for longer than its tool may take."""
    called = threading.Event()

    def hold(_call: Call) -> None:
        called.set()
        stay()

    outcomes: list[Outcome] = []

    def holding(seconds: float) -> Owners:
        held = Tool(hold, reconcile=reconcile, timeout_seconds=seconds)
        return owning(lambda turn: outcomes.append(turn.call(held)))

    holding(PATIENCE_SECONDS).own(taken)
    assert called.wait(PATIENCE_SECONDS)
    taken.lease.lose("the container died")
    holding(1).take_over(lapse(taken))
    wait_until(lambda: load(taken).finished)
    assert [outcome.status for outcome in outcomes] == ["in_doubt"]
    assert load(taken).status == "done"


@pytest.mark.parametrize("policy", [Policy.IDEMPOTENT, Policy.TRANSACTIONAL])
def test_a_call_keeps_what_once_meant_when_it_was_begun(taken: Taken, policy: Policy) -> None:
    """New code that may call its tool again takes over a call of the old one, which may not: the
    old one sent no key, so another call would be another effect.
    """
    calls: list[Policy] = []
    called = threading.Event()

    def running(policy: Policy) -> Owners:
        def pay(_call: Call) -> None:
            calls.append(policy)
            called.set()
            stay()

        return owning(lambda turn: turn.call(Tool(pay, policy, timeout_seconds=PATIENCE_SECONDS)))

    running(Policy.ONCE).own(taken)
    assert called.wait(PATIENCE_SECONDS)
    taken.lease.lose("the container died")
    running(policy).take_over(lapse(taken))
    wait_until(lambda: load(taken).finished)
    assert calls == [Policy.ONCE]
    step = steps.load(taken.turn.key, 1)
    assert step is not None
    assert step.status == steps.IN_DOUBT


@pytest.mark.parametrize("policy", Policy)
def test_a_call_that_no_thread_can_be_had_for_is_an_error(
    taken: Taken, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known not to have been made: neither in doubt, nor the end of the turn."""
    outcomes: list[Outcome] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name in {"tool-pay", "transaction"}:
            raise RuntimeError("can't start new thread")
        real(thread)

    @tool(policy=policy)
    def pay(_call: Call) -> None:
        raise AssertionError("called")

    monkeypatch.setattr(threading.Thread, "start", start)
    own(taken, lambda turn: outcomes.append(turn.call(pay)))
    assert [(outcome.status, outcome.result["message"]) for outcome in outcomes] == [
        ("error", NO_THREAD)
    ]


def test_writes_that_cannot_be_are_an_error_at_once(taken: Taken) -> None:
    """Firestore calls a document over 1 MiB, and a transaction that is over, by the same name: so
    the tool runs once more, and not until its time is over.
    """
    bodies: list[int] = []

    @tool(policy=Policy.TRANSACTIONAL)
    def large(call: Call) -> None:
        bodies.append(call.step)
        call.staged.set(firestore.client().document("effects/large"), {"text": "x" * 1_200_000})

    outcomes: list[Outcome] = []
    own(taken, lambda turn: outcomes.append(turn.call(large)))
    assert outcomes[0].status == "error"
    assert "InvalidArgument" in outcomes[0].result["message"]
    assert len(bodies) == 2


def test_a_transaction_that_was_called_invalid_once_is_tried_again(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """That one may have been over; its writes are as good as ever."""
    rule = faulty_storage.inject(
        "Commit", Answer("INVALID_ARGUMENT"), when=touches("effects/small"), times=1
    )

    @tool(policy=Policy.TRANSACTIONAL)
    def small(call: Call) -> None:
        call.staged.set(firestore.client().document("effects/small"), {"text": "x"})

    outcomes: list[Outcome] = []
    own(create(), lambda turn: outcomes.append(turn.call(small)))
    assert (rule.fired, outcomes[0].status) == (1, "ok")


def test_nobody_is_told_of_more_time_than_the_turn_has(taken: Taken) -> None:
    """A decision on a turn past its retention is `gone`, however long the tool would wait."""

    @tool(approval_seconds=1000 * 3600)
    def patient(_call: Call) -> None:
        pass

    owning(lambda turn: turn.call(patient)).own(taken)
    wait_until(lambda: load(taken).status == "waiting")
    (pending,) = sse.decode(stored(taken))
    told = datetime.fromisoformat(pending.data["expiresAt"]).timestamp()
    assert abs(told - taken.turn.expire_at.timestamp()) <= 1


def _at_once(_call: Call) -> Happened | None:
    return None


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_seconds": float("nan")},
        {"timeout_seconds": float("inf")},
        {"timeout_seconds": 0},
        {"approval_seconds": 0},
        {"approval_seconds": float("inf")},
        {"policy": Policy.IDEMPOTENT, "reconcile": _at_once},
    ],
)
def test_options_that_cannot_hold_are_refused(options: dict[str, Any]) -> None:
    """A tool whose time is no number would be waited for for ever."""
    with pytest.raises(ValueError, match="_at_once: "):
        Tool(_at_once, **options)


class Clock:
    """The time of a module, which a test puts forward."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.sleep = time.sleep

    def monotonic(self) -> float:
        """Seconds."""
        return time.monotonic() + self.ahead


def test_a_transaction_that_comes_after_its_time_records_nothing(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body ends while the turn goes on: its writes, and a second outcome, are refused, and the
    turn's owner stays its owner.
    """
    late = firestore.client().collection("effects").document(taken.turn.key)
    told, returned = threading.Event(), threading.Event()
    clock = Clock()
    monkeypatch.setattr(transact, "time", clock)

    @tool(policy=Policy.TRANSACTIONAL, timeout_seconds=60)
    def slow(call: Call) -> str:
        call.staged.set(late, {"count": 1})
        clock.ahead = 61
        assert told.wait(PATIENCE_SECONDS)
        returned.set()
        return "late"

    def run(turn: Turn) -> None:
        assert turn.call(slow).status == "timeout"
        turn.token("on ")
        told.set()
        assert returned.wait(PATIENCE_SECONDS)
        wait_until(lambda: not any(one.name == "transaction" for one in threading.enumerate()))
        turn.token("and on")

    frames = own(taken, run)
    assert [frame.type for frame in frames] == ["tool_start", "tool_end", "token", "token", "done"]
    assert load(taken).holder.epoch == 1
    step = steps.load(taken.turn.key, 1)
    assert step is not None
    assert step.status == "timeout"
    assert not late.get().exists
