"""New code takes a turn over: between a crash and the takeover, and while a person decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import Agent as PydanticAgent

from functions.pydantic_ai import durable
from functions.turns import decide
from functions.turns.owners import Owners
from functions.turns.program import Agent
from functions.turns.takeover import Taken
from functions.wire import sse
from functions.wire.fold import fold
from tests.pydantic_ai.scripted import Calls, Does, Piece, Script, ends, frames, own, take_over
from tests.support.patience import wait_until
from tests.turns.conftest import Create, load, settings

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

FIRST: list[Piece] = ["I pay. ", Calls("pay", {"cents": 5})]


def paying(script: Script, paid: list[str], *, code: str, name: str = "pay", **how: Any) -> Agent:
    """An agent whose one tool leaves a line that says which code ran."""
    agent: PydanticAgent[None, Any] = script.agent(instructions=f"You are {code}.")

    def pay(cents: int) -> str:
        paid.append(f"{code} paid {cents}")
        return f"{cents} by {code}"

    pay.__name__ = name
    agent.tool_plain(pay, **how)
    return durable(agent, version=code, accepts=frozenset({"1"}))


def crash_in_the_second_response(create: Create, paid: list[str]) -> Taken:
    """A turn whose container dies after its tool step, while the model is talking."""
    taken = create(lease_seconds=30)
    script = Script(FIRST, ["Half of", Does(lambda: taken.lease.lose("the container died"))])
    own(taken, paying(script, paid, code="old"))
    wait_until(lambda: taken.lease.lost)
    return taken


def test_new_code_goes_on_from_what_is_recorded(create: Create) -> None:
    """Another model, other instructions, another tool: what was done stays, the rest is new."""
    paid: list[str] = []
    taken = crash_in_the_second_response(create, paid)
    script = Script(["never"], ["All of it."])
    take_over(taken, paying(script, paid, code="new"))
    events = frames(taken)
    assert events[-1].type == "done"
    assert fold(events).text == "I pay. \n\nAll of it."
    assert paid == ["old paid 5"]
    assert script.returns() == [("pay", "success", "5 by old")]
    assert len(script.asked) == 1, "the recorded response was asked for again"


@dataclass(frozen=True)
class Change:
    """What the new code cannot go on with, and what the event says of it."""

    agent: Callable[[list[str]], Agent]
    says: str


def _other_argument(paid: list[str]) -> Agent:
    agent = Script([], ["never"], ["never"]).agent()

    @agent.tool_plain
    def pay(dollars: int) -> str:
        paid.append("new")
        return f"{dollars}"

    return durable(agent, accepts=frozenset({"1"}))


def _other_version(_paid: list[str]) -> Agent:
    return durable(Script().agent(), version="2")


CHANGES = {
    "the tool has another name": Change(
        lambda paid: paying(Script([], ["never"]), paid, code="new", name="charge"),
        "was recorded as tool 'pay' and is now model",
    ),
    "the tool has other parameters": Change(_other_argument, "recorded as tool 'pay'"),
    "it accepts no other version": Change(_other_version, "begun by agent version '1'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_new_code_that_cannot_go_on_says_what_differs(create: Create, name: str) -> None:
    """`agent_changed`; no model is asked, no tool called."""
    paid: list[str] = []
    taken = crash_in_the_second_response(create, paid)
    take_over(taken, CHANGES[name].agent(paid))
    events = frames(taken)
    assert events[-1].data["code"] == "agent_changed"
    assert CHANGES[name].says in events[-1].data["message"]
    assert paid == ["old paid 5"]


def waiting(create: Create, paid: list[str]) -> tuple[Taken, list[sse.Frame]]:
    """A turn of old code that waits for a person."""
    taken = create(lease_seconds=30)
    own(taken, paying(Script(FIRST), paid, code="old", requires_approval=True))
    events = frames(taken)
    assert events[-1].type == "tool_pending"
    return taken, events


def approve(taken: Taken, agent: Agent) -> list[sse.Frame]:
    """Have a container of new code approve the step; the whole journal of the turn's end."""
    long = settings(lease_seconds=30)
    owners = Owners(lambda: agent, long)
    turn = taken.turn
    decide.decide(turn.owner, turn.turn_id, 2, "approve", 0, owners=owners, settings=long)
    wait_until(lambda: load(taken).finished)
    return frames(taken)


def test_an_approved_call_is_made_by_the_code_that_is_deployed_then(create: Create) -> None:
    """Once: the arguments that the person saw are those that were recorded."""
    paid: list[str] = []
    taken, _ = waiting(create, paid)
    script = Script([], ["Paid."])
    events = approve(taken, paying(script, paid, code="new", requires_approval=True))
    assert ends(events) == [("pay", "ok", "5 by new")]
    assert paid == ["new paid 5"]
    assert events[-1].type == "done"


def test_an_approval_that_new_code_no_longer_asks_for_still_holds(create: Create) -> None:
    """The person's word was asked for, and was given."""
    paid: list[str] = []
    taken, _ = waiting(create, paid)
    events = approve(taken, paying(Script([], ["Paid."]), paid, code="new"))
    assert ends(events) == [("pay", "ok", "5 by new")]
    assert paid == ["new paid 5"]


def test_a_call_that_new_code_does_not_know_is_not_made(create: Create) -> None:
    """What was approved is another tool's: the turn ends and says so."""
    paid: list[str] = []
    taken, _ = waiting(create, paid)
    script = Script([], ["never"])
    events = approve(taken, paying(script, paid, code="new", name="charge"))
    assert events[-1].data["code"] == "agent_changed"
    assert "recorded as tool 'pay'" in events[-1].data["message"]
    assert paid == []
    assert script.asked == []
