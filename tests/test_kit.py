"""The test kit, as a user writes tests with it: the agent of a shop, and its tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from google.cloud.firestore import FieldFilter

from functions import firestore
from functions.turns.program import Agent, Turn
from functions.turns.tools import Call, Policy, tool
from tests.support.kit import CrashPoint, Kit

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(240)]


def note(call: Call) -> None:
    """Count a call outside of the process."""
    with Path(os.environ["CALLS"]).open("a") as file:
        file.write(f"{call.idempotency_key}\n")


@tool()
def fax(call: Call, *, order: str) -> dict[str, Any]:
    """Nobody can ask the fax machine whether it went out."""
    note(call)
    return {"faxed": order}


@tool(policy=Policy.IDEMPOTENT)
def charge(call: Call, *, order: str) -> dict[str, Any]:
    """The payment provider knows a repeated key, and charges once."""
    note(call)
    return {"charged": order}


@tool(policy=Policy.TRANSACTIONAL)
def ticket(call: Call, *, order: str) -> dict[str, Any]:
    """A ticket is a document: it is opened by the transaction that records it."""
    note(call)
    call.staged.create(firestore.client().collection("tickets").document(), {"order": order})
    return {"order": order}


@tool(approval_seconds=600)
def refund(call: Call, *, order: str) -> dict[str, Any]:
    """Somebody has to agree."""
    note(call)
    return {"refunded": order}


TOOLS = {one.name: one for one in (fax, charge, ticket, refund)}


def run(turn: Turn) -> None:
    """Call the tool that the prompt names, for the order that it names."""
    name, order = turn.prompt.split()
    outcome = turn.call(TOOLS[name], order=order)
    turn.token(f"{name}: {outcome.status}")


def agent() -> Agent:
    """What the containers serve."""
    return Agent(run)


class Shop:
    """The kit with the shop's agent, and what its tools did."""

    def __init__(self, kit: Kit, calls: Path) -> None:
        self.kit = kit
        self._calls = calls

    def keys(self) -> list[str]:
        """The calls that were made, as their idempotency keys."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def shop(firestore_emulator: str, tmp_path: Path) -> Any:
    """A shop of its own for each test."""
    calls = tmp_path / "calls"
    with Kit("tests.test_kit:agent", storage=firestore_emulator, CALLS=str(calls)) as kit:
        yield Shop(kit, calls)


def tickets(order: str) -> int:
    """How many tickets there are of an order."""
    of_order = FieldFilter("order", "==", order)
    collection = firestore.client().collection("tickets")
    return len(list(collection.where(filter=of_order).stream()))


STARTED, EFFECT = CrashPoint.AFTER_START_COMMIT, CrashPoint.AFTER_EFFECT
ENDED = CrashPoint.AFTER_OUTCOME_COMMIT


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize(
    ("name", "point", "calls", "outcome"),
    [
        ("fax", CrashPoint.BEFORE_START_COMMIT, 1, "ok"),
        ("fax", STARTED, 0, "in_doubt"),
        ("fax", EFFECT, 1, "in_doubt"),
        ("charge", STARTED, 1, "ok"),
        ("charge", EFFECT, 2, "ok"),
        ("charge", CrashPoint.BEFORE_OUTCOME_COMMIT, 2, "ok"),
        ("ticket", EFFECT, 2, "ok"),
        ("ticket", ENDED, 1, "ok"),
    ],
)
def test_a_tool_of_the_shop_holds_what_its_policy_says(
    shop: Shop, name: str, point: CrashPoint, calls: int, outcome: str
) -> None:
    """Its container is killed at the point; another one finishes the turn."""
    order = os.urandom(4).hex()
    effect = (lambda: bool(shop.keys())) if point is EFFECT else None
    # A transaction that died may hold its locks for up to a minute, on the emulator.
    run = shop.kit.run(f"{name} {order}", crash_at=point, effect=effect, timeout=180)
    assert run.outcomes == {1: outcome}
    assert run.text == f"{name}: {outcome}"
    assert run.runs == 2
    assert run.events[-1].type == "done"
    assert len(shop.keys()) == calls
    assert len(set(shop.keys())) == min(calls, 1)
    if name == "ticket":
        assert tickets(order) == 1


def test_a_turn_that_nothing_happens_to_has_one_owner(shop: Shop) -> None:
    """The kit runs it to its end."""
    run = shop.kit.run("fax A-17")
    assert (run.outcomes, run.text, run.runs) == ({1: "ok"}, "fax: ok", 1)
    assert [event.type for event in run.events] == ["tool_start", "tool_end", "token", "done"]


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_DECISION, CrashPoint.AFTER_DECISION])
def test_an_approval_is_given_once(shop: Shop, point: CrashPoint) -> None:
    """The container that records it is killed; the refund is made once."""
    run = shop.kit.run("refund A-17", crash_at=point, decisions={1: "approve"}, timeout=180)
    assert run.outcomes == {1: "ok"}
    assert len(shop.keys()) == 1


def test_a_turn_that_waits_is_given_back_as_it_is(shop: Shop) -> None:
    """Nobody decides: nothing was called."""
    run = shop.kit.run("refund A-17")
    assert run.waits
    assert run.events[-1].type == "tool_pending"
    assert (run.outcomes, shop.keys()) == ({}, [])


def test_a_point_that_is_never_reached_is_an_error(shop: Shop) -> None:
    """So a test cannot pass without its crash."""
    with pytest.raises(AssertionError, match="never came to"):
        shop.kit.run("fax A-17", crash_at=ENDED, step=2)
    with pytest.raises(ValueError, match="effect"):
        shop.kit.run("fax A-17", crash_at=EFFECT)
