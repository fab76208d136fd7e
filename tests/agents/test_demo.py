"""The demo agent: the same text for the same prompt, and one effect of each tool it calls."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from dev.project import ROOT
from functions import firestore
from functions.agents import demo, demo_tools
from functions.wire.fold import Fold
from tests.conftest import Serve
from tests.support.client import decide, folded, headers, new_turn_id, resume
from tests.support.firestore_proxy import FirestoreProxy, Hold, paths, touches
from tests.support.lapse import lapse_turn
from tests.support.payments import PaymentServer
from tests.support.server import FunctionServer
from tests.support.sse import Frame, Ping, RawStream

PACE = "rate=500 silence=0 words=12"
STORY = f"Open a ticket, look up the order (query=8) and charge me 19 dollars {PACE}"
"""The query outlasts the others on any machine."""
REFUND = f"Refund me 19 dollars {PACE}"
PLAN = "Let me think about that.\n\n"
STORY_TOLD = (
    "A ticket is open: Order A-17.\n"
    "Order A-17 is a fence and a lease.\n"
    "19.00 dollars are charged to order A-17.\n\n"
)
CHARGE = touches(r"agent_turns/[^/]+/agent_turn_steps/000004$")
STAY = threading.Event()
"""Never set: a commit that is held by it stays where it is."""


def expected(prompt: str, told: str = "") -> str:
    """The text of a whole turn, which depends on the prompt and the outcomes alone."""
    return f"{PLAN}{told}{''.join(demo.tokens(prompt, demo.pace(prompt).words))}"


@pytest.fixture
def payments() -> Iterator[PaymentServer]:
    """A payment server that has done nothing."""
    with PaymentServer() as server:
        yield server


@pytest.fixture
def demo_of(serve: Serve, payments: PaymentServer) -> Serve:
    """Serve one function of `main.py`, whose agent is the demo."""

    def start(target: str, **environ: Any) -> FunctionServer:
        given = {"SOURCE": str(ROOT / "main.py"), "DEMO_PAYMENTS_URL": payments.url, **environ}
        return serve(target, **given)

    return start


def ask(server: FunctionServer, turn_id: str, prompt: str) -> RawStream:
    """POST a prompt."""
    body = json.dumps({"prompt": prompt}).encode()
    return RawStream(server.url, "POST", headers(turn_id, Content_Type="application/json"), body)


def statuses(*streams: RawStream) -> dict[str, str]:
    """The outcome of each tool; AssertionError for a tool that has two."""
    ends = {
        event.id: event.data
        for stream in streams
        for event in stream.events()
        if event.event == "tool_end"
    }
    assert max(Counter(end["tool"] for end in ends.values()).values(), default=1) == 1
    return {end["tool"]: end["status"] for end in ends.values()}


def tickets(*streams: RawStream) -> set[str]:
    """The ids of the tickets that a turn told of."""
    return {
        event.data["result"]["ticket"]
        for stream in streams
        for event in stream.events()
        if event.event == "tool_end" and event.data["tool"] == "open_ticket"
    }


def all_tickets() -> set[str]:
    """The ids of the tickets that there are."""
    return {one.id for one in firestore.client().collection(demo_tools.TICKETS).stream()}


def outcome_of_the_charge(commit: Any) -> bool:
    """Whether it is recorded by this commit: the one of its start begins others, too."""
    written = [path for path in paths(commit) if "/agent_turn_steps/" in path]
    return len(written) == 1 and CHARGE(commit)


def in_the_silence(frames: list[Frame | Ping]) -> bool:
    """Whether all but the query is done."""
    return sum(isinstance(one, Frame) and one.event == "tool_end" for one in frames) == 2


def test_the_text_of_a_prompt_is_the_same_every_time() -> None:
    """In every process and on every machine, and another one for another prompt."""
    said = "".join(demo.tokens("Tell me", 9))
    assert said == "The journal hands over the same bytes. An event"
    assert "".join(demo.tokens("Tell us", 9)) != said
    assert len("".join(demo.tokens("Tell me", 500)).split()) == 500


@pytest.mark.parametrize(
    ("prompt", "names"),
    [
        ("Tell me about durable turns", []),
        ("A payload, discharged, of ticketing", []),
        ("Open a TICKET", [["open_ticket"]]),
        ("query=5", [["slow_query"]]),
        ("Please pay", [["charge"]]),
        ("Refund me", [["refund"]]),
        (
            "Refund, charge, look up, ticket",
            [["open_ticket", "slow_query", "charge"], ["refund"]],
        ),
    ],
)
def test_a_prompt_calls_the_tools_that_it_mentions(prompt: str, names: list[list[str]]) -> None:
    """The refund in a response of its own, after the others."""
    assert [[tool.name for tool, _args in one] for one in demo.calls(prompt)] == names


def test_a_prompt_sets_the_amount_and_the_length_of_the_query() -> None:
    """With 19 dollars and 25 seconds as it is, and no more than the tool allows."""
    assert [args for _tool, args in demo.calls("query and pay")[0]] == [
        {"order": "A-17", "seconds": 25.0},
        {"order": "A-17", "cents": 1900},
    ]
    assert [args for _tool, args in demo.calls("query=5, pay 7 dollars")[0]] == [
        {"order": "A-17", "seconds": 5.0},
        {"order": "A-17", "cents": 700},
    ]
    assert demo.pace("query=9999").query == demo_tools.LONGEST_QUERY_SECONDS


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("error", "The refund failed: no money."),
        ("denied", "The refund was denied."),
        ("expired", "The refund was not approved in time."),
        ("timeout", "The refund took too long."),
        ("in_doubt", "The refund is in doubt: nobody can know whether it took place."),
    ],
)
def test_every_outcome_is_told(status: str, says: str) -> None:
    """In words of its own."""
    assert demo.told(demo_tools.refund, status, {"message": "no money"}) == says


@pytest.mark.emulator
def test_a_plain_prompt_calls_no_tool(demo_of: Serve, payments: PaymentServer) -> None:
    """It plans and answers."""
    prompt = f"Tell me about leases {PACE}"
    with ask(demo_of("start_turn"), new_turn_id(), prompt) as stream:
        stream.read_to_end()
        assert folded(stream).text == expected(prompt)
        assert statuses(stream) == {}
    assert payments.effects()["calls"] == 0


@pytest.mark.usefixtures("storage")
@pytest.mark.emulator
def test_an_uninterrupted_turn_does_each_thing_once(
    demo_of: Serve, payments: PaymentServer
) -> None:
    """Side by side: the query is the last to end. The ticket is what its `tool_end` says."""
    before = all_tickets()
    with ask(demo_of("start_turn"), new_turn_id(), STORY) as stream:
        stream.read_to_end()
        assert folded(stream).text == expected(STORY, STORY_TOLD)
        assert list(statuses(stream).items())[-1] == ("slow_query", "ok")
        assert set(statuses(stream).values()) == {"ok"}
        assert all_tickets() - before == tickets(stream)
        (name,) = tickets(stream)
    ticket = firestore.client().collection(demo_tools.TICKETS).document(name).get()
    assert ticket.to_dict() == {"subject": "Order A-17", "status": "open"}
    effects = payments.effects()
    assert (effects["charges"], effects["calls"]) == (1, 1)


@pytest.mark.usefixtures("storage")
@pytest.mark.emulator
def test_an_owner_killed_in_the_silence_costs_nothing(
    demo_of: Serve, payments: PaymentServer
) -> None:
    """The README's story: the socket is cut, the container killed, and another one finishes: one
    ticket, one charge, and the text of a turn that nothing befell."""
    before, owner, turn_id = all_tickets(), demo_of("start_turn"), new_turn_id()
    state = Fold()
    with ask(owner, turn_id, STORY) as cut:
        cut.read_until(in_the_silence)
        cut.abort()
        folded(cut, into=state)
        owner.kill()
    lapse_turn(turn_id)
    assert "slow_query" not in statuses(cut)
    with resume(demo_of("resume_turn"), turn_id, state.cursor) as stream:
        stream.read_to_end()
        folded(stream, into=state)
    assert state.ended is not None
    assert state.ended.type == "done"
    assert state.text == expected(STORY, STORY_TOLD)
    assert statuses(cut, stream) == dict.fromkeys(("open_ticket", "charge", "slow_query"), "ok")
    assert all_tickets() - before == tickets(cut, stream)
    assert len(tickets(cut, stream)) == 1
    effects = payments.effects()
    assert (effects["charges"], effects["calls"]) == (1, 1)


@pytest.mark.usefixtures("storage")
@pytest.mark.emulator
def test_an_owner_killed_before_the_charge_is_recorded_charges_once(
    demo_of: Serve, firestore_proxy: FirestoreProxy, payments: PaymentServer
) -> None:
    """The payment server is asked twice, with one key; the ticket's transaction took place."""
    before, turn_id = all_tickets(), new_turn_id()
    owner = demo_of("start_turn", storage=firestore_proxy.address)
    held = firestore_proxy.inject("Commit", Hold(STAY), when=outcome_of_the_charge)
    with ask(owner, turn_id, STORY) as lost:
        held.wait()
        owner.kill()
        lost.read_to_end()
        state = folded(lost)
    lapse_turn(turn_id)
    # Side by side with the charge the ticket may be recorded before it, or wait behind it.
    assert statuses(lost) in ({}, {"open_ticket": "ok"})
    with resume(demo_of("resume_turn"), turn_id, state.cursor) as stream:
        stream.read_to_end()
        folded(stream, into=state)
    assert state.text == expected(STORY, STORY_TOLD)
    assert all_tickets() - before == tickets(lost, stream)
    assert len(tickets(lost, stream)) == 1
    effects = payments.effects()
    assert (effects["charges"], effects["calls"]) == (1, 2)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("decision", "refunds", "says"),
    [
        ("approve", 1, "19.00 dollars are refunded for order A-17.\n\n"),
        ("deny", 0, "The refund was denied.\n\n"),
    ],
)
def test_a_refund_waits_for_a_person(
    demo_of: Serve, payments: PaymentServer, decision: str, refunds: int, says: str
) -> None:
    """Step 2, as `make dev` prints it; nothing is refunded before it is approved."""
    turn_id = new_turn_id()
    with ask(demo_of("start_turn"), turn_id, REFUND) as stream:
        stream.read_to_end()
        last = stream.events()[-1]
        state = folded(stream)
    assert (last.event, last.data["step"], last.data["tool"]) == ("tool_pending", 2, "refund")
    assert payments.effects()["refunds"] == 0
    with decide(demo_of("run_tool_step"), turn_id, 2, decision, state.cursor) as stream:
        stream.read_to_end()
        folded(stream, into=state)
    assert state.text == expected(REFUND, says)
    assert payments.effects()["refunds"] == refunds


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "the payment server runs in development only"),
        ("http://127.0.0.1:1", "the payment server gave no answer; it may have acted or not"),
    ],
)
def test_a_charge_without_a_payment_server_fails_and_says_why(
    demo_of: Serve, url: str, says: str
) -> None:
    """The turn goes on."""
    prompt = f"Charge me {PACE}"
    with ask(demo_of("start_turn", DEMO_PAYMENTS_URL=url), new_turn_id(), prompt) as stream:
        stream.read_to_end()
        assert statuses(stream) == {"charge": "error"}
        assert folded(stream).text == expected(prompt, f"The charge failed: {says}.\n\n")
