"""Model steps that fail and are asked again, budgets, and what `done` says: in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from functions import logs
from functions.errors import TurnFailed
from functions.turns import asking, record, takeover
from functions.turns.asking import MOST_ATTEMPTS, ModelFailed, ModelUnavailable, next_pause
from functions.turns.budget import Budget, Spent
from functions.turns.owners import Owners
from functions.turns.program import Agent, Emit, Turn
from functions.turns.takeover import Taken
from functions.turns.tools import Call, Policy, tool
from functions.wire import sse
from functions.wire.fold import Fold, fold
from tests.support.leftover import stay
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import Create, lapse, load, settings
from tests.turns.test_writer import stored


def own(taken: Taken, run: Callable[[Turn], None], budget: Budget | None = None) -> list[sse.Frame]:
    """Run a turn to its end, or until its lease is lost; the frames of its journal."""
    agent = Agent(run, budget=budget or Budget())
    Owners(lambda: agent, settings()).own(taken)
    wait_until(lambda: load(taken).finished)
    return list(sse.decode(stored(taken)))


def attempts(*outcomes: Any) -> Callable[[Emit], Any]:
    """A model that says something each time, and then fails or answers as given."""
    left = list(outcomes)

    def call(emit: Emit) -> Any:
        emit(f"try {len(outcomes) - len(left) + 1}, ")
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


def again(seconds: float = 0.0) -> ModelUnavailable:
    """What passes, soon."""
    return ModelUnavailable("429", retry_after_seconds=seconds)


@pytest.fixture(name="taken")
def _taken(storage: None, create: Create, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """A turn of this process whose lease lasts the test, and whose pauses take no time of it."""
    assert storage is None
    monkeypatch.setattr(asking, "FIRST_PAUSE_SECONDS", 0.001)
    return create()


@pytest.mark.emulator
def test_what_passes_is_withdrawn_and_asked_again(taken: Taken) -> None:
    """Each broken attempt is followed by a rewind to the step's beginning, none before it."""

    def run(turn: Turn) -> None:
        turn.token("é🌍 ")
        reply = turn.model("ask", {}, attempts(again(), again(), {"tokens": 3}))
        turn.token(f"{reply['tokens']}")

    frames = own(taken, run)
    kinds = [frame.type for frame in frames]
    assert kinds == ["token", "token", "rewind", "token", "rewind", "token", "token", "done"]
    assert [frame.data for frame in frames if frame.type == "rewind"] == [
        {"to": 1, "length": 4}
    ] * 2
    assert fold(frames).text == "é🌍 try 3, 3"


@pytest.mark.emulator
def test_every_cursor_comes_to_the_same_text_after_a_rewind(taken: Taken) -> None:
    """A client that was cut anywhere folds the rest to what the whole journal folds to."""
    frames = own(taken, lambda turn: turn.model("ask", {}, attempts(again(), again(), None)))
    whole = fold(frames)
    for cut in range(len(frames)):
        state = fold(frames[:cut])
        resumed = fold(frames[cut:], Fold(text=state.text, cursor=state.cursor))
        assert resumed.text == whole.text == "try 3, "


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_a_takeover_after_a_withdrawn_attempt_rewinds_to_the_last_finished_step(
    create: Create,
) -> None:
    """The rewind of an attempt finishes nothing: the boundary stays where it was."""
    taken = create()
    started = Owners(lambda: Agent(first), settings())

    def first(turn: Turn) -> None:
        turn.model("one", {}, attempts({"one": 1}))
        turn.token("between ")
        turn.model("two", {}, attempts(again(), again(30)))

    def second(turn: Turn) -> None:
        turn.model("one", {}, lambda _emit: pytest.fail("asked twice"))
        turn.token("between ")
        turn.model("two", {}, attempts(None))

    writer = started.own(taken)
    seen = b""
    while seen.count(b"event: rewind") < 2:
        seen += writer.read(fold(sse.decode(seen)).cursor, timeout_seconds=PATIENCE_SECONDS).frames
    taken.lease.lose("the container died")
    Owners(lambda: Agent(second), settings()).take_over(lapse(taken))
    wait_until(lambda: load(taken).finished)
    frames = list(sse.decode(stored(taken)))
    assert [frame.data for frame in frames if frame.type == "rewind"][-1] == {"to": 1, "length": 7}
    assert fold(frames).text == "try 1, between try 1, "


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("error", "code", "calls"),
    [
        (again(), "model_unavailable", MOST_ATTEMPTS),
        (again(asking.LONGEST_PAUSE_SECONDS + 1), "model_unavailable", 1),
        (ModelFailed("model_refused", "the model refused"), "model_refused", 1),
    ],
)
def test_what_does_not_pass_ends_the_turn(
    taken: Taken, error: Exception, code: str, calls: int
) -> None:
    """With its code, once the tries are used up or when none is due; its text is withdrawn."""
    made: list[int] = []

    def call(emit: Emit) -> None:
        made.append(1)
        emit("half of it")
        raise error

    def run(turn: Turn) -> None:
        turn.token("Before. ")
        turn.model("ask", {}, call)

    frames = own(taken, run)
    assert frames[-1].data["code"] == code
    assert len(made) == calls
    assert fold(frames).text == "Before. "


def test_pauses_double_and_honour_what_the_model_asks_for() -> None:
    """Up to a number of attempts, and to a bound on each pause."""
    for number in range(1, MOST_ATTEMPTS):
        pause = next_pause(number, None)
        assert pause is not None
        assert 2 ** (number - 1) / 2 <= pause <= 2 ** (number - 1)
        asked = next_pause(number, 20.0)
        assert asked is not None
        assert 20 <= asked <= 30
        soon = next_pause(number, 0.0)
        assert soon is not None
        assert soon >= 2 ** (number - 1) / 2  # "at once" is no leave to hammer
    assert next_pause(MOST_ATTEMPTS, None) is None
    for too_long in (asking.LONGEST_PAUSE_SECONDS + 1, float("inf"), float("nan")):
        assert next_pause(1, too_long) is None
    assert (next_pause(1, -5.0) or 0) >= 0.5


@tool()
def ping(call: Call) -> int:
    """Say where."""
    return call.step


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(model_steps=2), "2 model steps"),
        (Budget(tool_calls=3), "3 tool calls"),
        (Budget(tokens=15), "15 tokens"),
        (Budget(seconds=0.2), "0.2 seconds"),
    ],
)
def test_a_turn_that_goes_on_for_ever_ends_by_its_budget(
    taken: Taken, budget: Budget, said: str
) -> None:
    """The event names the bound that was met."""

    def run(turn: Turn) -> None:
        while True:
            turn.model("ask", {}, lambda emit: emit("more "))
            turn.spend(8)
            turn.call_all([(ping, {}), (ping, {})])

    frames = own(taken, run, budget)
    assert frames[-1].type == "error"
    assert frames[-1].data["code"] == "budget_exceeded"
    assert said in frames[-1].data["message"]


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_recorded_steps_are_never_refused(create: Create) -> None:
    """A re-run under a smaller budget goes on to the first step that is not recorded."""
    taken = create()
    told: list[str] = []

    def run(turn: Turn) -> None:
        for number in range(3):
            turn.model("ask", number, lambda _emit: None)
            turn.spend(10)
            turn.call(ping)
        told.append("done")
        if len(told) == 1:
            taken.lease.lose("the container died")
        else:
            turn.model("ask", 3, lambda _emit: None)

    Owners(lambda: Agent(run), settings()).own(taken)
    wait_until(lambda: told == ["done"] and taken.lease.lost)
    small = Agent(run, budget=Budget(model_steps=1, tool_calls=1, tokens=1))
    Owners(lambda: small, settings()).take_over(lapse(taken))
    wait_until(lambda: load(taken).finished)
    assert told == ["done", "done"]
    assert list(sse.decode(stored(taken)))[-1].data["code"] == "budget_exceeded"


@pytest.mark.emulator
def test_time_in_which_nobody_owned_the_turn_does_not_count(taken: Taken) -> None:
    """Neither a wait for a person nor the time until a takeover."""
    turn = load(taken)
    later = replace(turn, read_at=turn.read_at + timedelta(hours=5))
    assert later.owned_seconds > 5 * 3600
    new = takeover.take_over(later, settings=settings())
    assert new is not None
    assert load(taken).owned_seconds < 0
    assert record.load(taken.turn.key) is not None


def test_a_budget_names_the_bound_that_a_step_would_break() -> None:
    """Exactly what it allows is allowed."""
    budget = Budget(model_steps=1, tool_calls=1, tokens=10, seconds=5)
    Spent(1, 1, 10).require(budget, 5.0)
    for spent, seconds, said in [
        (Spent(2, 1, 10), 5.0, "1 model steps"),
        (Spent(1, 2, 10), 5.0, "1 tool calls"),
        (Spent(1, 1, 11), 5.0, "10 tokens"),
        (Spent(1, 1, 10), 5.1, "5 seconds"),
    ]:
        with pytest.raises(TurnFailed, match=said):
            spent.require(budget, seconds)
    for wrong in ({"seconds": 0}, {"seconds": float("nan")}, {"tokens": float("nan")}):
        with pytest.raises(ValueError, match="above 0"):
            Budget(**wrong)


@pytest.mark.emulator
def test_done_says_what_the_agent_concluded(taken: Taken) -> None:
    """The reason and the usage, once; a re-run says the same, for it is given the same."""

    def run(turn: Turn) -> None:
        reply = turn.model("ask", {}, lambda _emit: {"output": 7})
        for wrong in ({"reason": "cancelled"}, {"usage": {"x": 0.5}}):
            with pytest.raises(ValueError, match=r"cancelled|whole"):
                turn.conclude(**wrong)
        turn.conclude(reason="length", usage={"outputTokens": reply["output"]})

    frames = own(taken, run)
    assert frames[-1].data == {"reason": "length", "usage": {"outputTokens": 7}}


def for_ever(turn: Turn) -> Callable[[Emit], None]:
    """A model that has not come to an end when the turn's time is over."""

    def call(emit: Emit) -> None:
        emit("half ")
        turn._began -= 2 * turn._budget.seconds
        while True:
            emit("more ")

    return call


def silent(turn: Turn) -> Callable[[Emit], None]:
    """A model that says nothing more when the turn's time is over."""

    def call(emit: Emit) -> None:
        emit("half ")
        turn._began -= 2 * turn._budget.seconds
        stay()

    return call


def nested(turn: Turn) -> Callable[[Emit], None]:
    """A model call that asks another model."""

    def call(emit: Emit) -> None:
        emit("half ")
        turn.model("inner", {}, lambda _emit: None)

    return call


def hard(emit: Emit) -> None:
    """Raises what is no `Exception`."""
    emit("half ")
    raise asyncio.CancelledError


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("call", "code"),
    [
        (for_ever, "budget_exceeded"),
        (silent, "budget_exceeded"),
        (nested, "nested_step"),
        (lambda _turn: hard, "agent_failed"),
    ],
    ids=["budget", "silent", "nested", "hard"],
)
def test_a_turn_that_ends_in_the_midst_of_a_response_takes_its_text_back(
    taken: Taken, call: Callable[[Turn], Callable[[Emit], None]], code: str
) -> None:
    """Whatever ended it: only the text of a recorded response stays (S4)."""

    def run(turn: Turn) -> None:
        turn.model("first", {}, lambda emit: emit("First. "))
        turn.token("Before. ")
        turn.model("ask", {}, call(turn))

    frames = own(taken, run)
    assert frames[-1].data["code"] == code
    assert fold(frames).text == "First. Before. "


@pytest.mark.emulator
def test_an_owner_that_lost_its_lease_does_not_wait_for_a_call_that_hangs(taken: Taken) -> None:
    """It lets the turn go, and logs its end; the call runs in the request's log context."""
    asked: list[object] = []

    def call(_emit: Emit) -> None:
        asked.append(logs.fields()["turn"])
        stay()

    owners = Owners(lambda: Agent(lambda turn: turn.model("ask", {}, call)), settings())
    owners.own(taken)
    wait_until(lambda: asked == [taken.turn.key])
    taken.lease.lose("the container was starved")
    wait_until(lambda: not owners._owners)


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_a_call_that_was_begun_is_never_refused(create: Create) -> None:
    """Its owner died, and the time is over: what came of it is found out and told first."""
    taken = create()
    calls: list[int] = []

    @tool(policy=Policy.IDEMPOTENT)
    def begun(call: Call) -> None:
        calls.append(call.step)
        wait_until(lambda: len(calls) == 2)

    def run(turn: Turn) -> None:
        turn.call(begun)
        turn.model("ask", {}, lambda _emit: pytest.fail("asked"))

    Owners(lambda: Agent(run), settings()).own(taken)
    wait_until(lambda: calls == [1])
    taken.lease.lose("the container died")
    over = Agent(run, budget=Budget(seconds=0.001))
    Owners(lambda: over, settings()).take_over(lapse(taken))
    wait_until(lambda: load(taken).finished)
    frames = list(sse.decode(stored(taken)))
    assert [frame.data["status"] for frame in frames if frame.type == "tool_end"] == ["ok"]
    assert frames[-1].data["code"] == "budget_exceeded"


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("policy", "effect"),
    [(Policy.IDEMPOTENT, "its effect stays"), (Policy.TRANSACTIONAL, "nothing was changed")],
)
def test_a_result_that_is_too_large_says_what_became_of_the_effect(
    taken: Taken, policy: Policy, effect: str
) -> None:
    """A transaction is rolled back: the model must not be told that it took place."""

    @tool(policy=policy)
    def large(_call: Call) -> str:
        return "x" * 600_000

    said: list[str] = []
    own(taken, lambda turn: said.append(turn.call(large).result["message"]))
    assert said[0].endswith(effect)
