"""Deciding steps in this process: several that wait, and what may cross a decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from functions.turns import decide, record, steps
from functions.turns.admission import Admitted
from functions.turns.owners import Owners
from functions.turns.program import Agent, Turn
from functions.turns.takeover import Taken
from functions.turns.tools import Call, Policy, tool
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import Create, lapse, load, settings

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """Lets tools and agents that wait for it end; at the latest with the test."""
    event = threading.Event()
    yield event
    event.set()


@tool(approval_seconds=0.2)
def hasty(call: Call) -> int:
    """Needs a person who is quick."""
    return call.step


@tool(approval_seconds=600)
def refund(call: Call) -> int:
    """Needs a person."""
    return call.step


def owning(run: Callable[[Turn], None]) -> Owners:
    """A process that serves this agent."""
    return Owners(lambda: Agent(run), settings())


def answer(taken: Taken, step: int, decision: str, owners: Owners) -> Admitted:
    """Decide a step of the turn."""
    turn = taken.turn
    return decide.decide(
        turn.owner, turn.turn_id, step, decision, 0, owners=owners, settings=settings()
    )


def statuses(taken: Taken) -> list[str]:
    """Of the turn's steps, in order."""
    found = steps.collection(taken.turn.key).stream()
    return [snapshot.get("status") for snapshot in found]


def is_waiting(taken: Taken) -> bool:
    """Whether the turn waits for a person."""
    return load(taken).status == record.WAITING


def test_a_decision_counts_though_another_step_has_expired(create: Create) -> None:
    """The turn may be taken over by then, and nobody did: the step itself is in its time."""
    taken = create()

    def run(turn: Turn) -> None:
        turn.call_all([(hasty, {}), (refund, {})])

    owners = owning(run)
    owners.own(taken)
    wait_until(lambda: is_waiting(taken))
    wait_until(lambda: load(taken).lapsed)
    answer(taken, 2, "approve", owners)
    wait_until(lambda: load(taken).finished)
    assert statuses(taken) == ["expired", "ok"]


def test_a_decision_counts_though_the_owner_of_another_step_died(
    create: Create, go: threading.Event
) -> None:
    """It is recorded by whoever takes the turn over for it."""
    taken = create()
    begun = threading.Event()

    @tool(approval_seconds=600)
    def slow(_call: Call) -> None:
        begun.set()
        go.wait()

    def run(turn: Turn) -> None:
        turn.call_all([(slow, {}), (refund, {})])

    first, second = owning(run), owning(run)
    first.own(taken)
    wait_until(lambda: is_waiting(taken))
    wait_until(lambda: not first._owners)
    answer(taken, 1, "approve", first)
    assert begun.wait(PATIENCE_SECONDS)
    died = first._owners[taken.turn.key]._taken
    assert died is not None
    died.lease.lose("its container died")
    lapse(died)
    answer(taken, 2, "deny", second)
    wait_until(lambda: load(taken).finished)
    assert statuses(taken) == ["in_doubt", "denied"]


def test_a_decision_where_the_owner_that_asked_has_not_gone_yet(
    create: Create, go: threading.Event
) -> None:
    """Its thread is still there, though the turn waits: the process runs the turn all the same."""
    taken = create()
    asked: list[bool] = []

    def run(turn: Turn) -> None:
        first = not asked
        asked.append(True)
        try:
            turn.call(refund)
        finally:
            if first:
                go.wait()

    owners = owning(run)
    owners.own(taken)
    wait_until(lambda: is_waiting(taken))
    assert taken.turn.key in owners._owners
    answer(taken, 1, "approve", owners)
    wait_until(lambda: load(taken).finished)
    assert statuses(taken) == ["ok"]


@pytest.mark.parametrize("policy", [Policy.ONCE, Policy.IDEMPOTENT])
def test_a_crash_beside_a_call_that_is_not_asked_for_yet(
    create: Create, go: threading.Event, policy: Policy
) -> None:
    """Calls that need no approval run first. The next owner finds them, asks for the other."""
    taken = create()
    begun = threading.Event()

    @tool(policy=policy)
    def beside(_call: Call) -> None:
        if not begun.is_set():
            begun.set()
            go.wait()

    def run(turn: Turn) -> None:
        turn.call_all([(refund, {}), (beside, {})])

    owning(run).own(taken)
    assert begun.wait(PATIENCE_SECONDS)
    taken.lease.lose("its container died")
    others = owning(run)
    others.take_over(lapse(taken))
    wait_until(lambda: load(taken).status != record.RUNNING)
    assert is_waiting(taken)
    ended = "in_doubt" if policy is Policy.ONCE else "ok"
    assert statuses(taken) == ["waiting", ended]
    wait_until(lambda: not others._owners)
    answer(taken, 1, "approve", others)
    wait_until(lambda: load(taken).finished)
    assert statuses(taken) == ["ok", ended]


def test_a_call_whose_start_is_not_recorded_any_more_is_not_made(
    create: Create, go: threading.Event
) -> None:
    """Another of its response was begun, and so it was, too: the turn ends instead."""
    taken = create()
    calls: list[int] = []

    @tool()
    def once(call: Call) -> None:
        calls.append(call.step)
        go.wait()

    def run(turn: Turn) -> None:
        turn.call_all([(once, {}), (once, {})])

    owning(run).own(taken)
    wait_until(lambda: len(calls) == 2)
    taken.lease.lose("its container died")
    steps.document(taken.turn.key, 1).delete()
    owning(run).take_over(lapse(taken))
    wait_until(lambda: load(taken).finished)
    assert load(taken).status == record.ERROR
    assert sorted(calls) == [1, 2]
