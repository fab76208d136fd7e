"""Pydantic AI agents in a turn: their text, their tools, their history, and what they do wrong."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelRetry,
)
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.settings import ModelSettings

from functions.pydantic_ai import Steps, current_call, durable, loop, messages, once, tools
from functions.turns import admission, cancel, decide, record, steps
from functions.turns.budget import Budget
from functions.turns.owners import Owners
from functions.turns.program import CHECK_SECONDS, Agent, Turn
from functions.turns.record import Request
from functions.turns.takeover import Taken
from functions.turns.tools import Call, Policy, tool
from functions.wire.fold import fold
from tests.pydantic_ai.scripted import Calls, Does, Piece, Script, ends, frames, own, take_over
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import Create, load, settings

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


@pytest.fixture(name="taken")
def _taken(create: Create) -> Taken:
    """A turn of this process, with a lease that lasts the test."""
    return create()


@tool(policy=Policy.IDEMPOTENT)
def ours(call: Call, *, x: int) -> dict[str, Any]:
    """A tool of this package."""
    return {"step": call.step, "x": x}


def test_tools_of_every_kind_are_steps_side_by_side(taken: Taken) -> None:
    """Ours, and Pydantic AI's, sync and async; at positions in the model's order."""
    script = Script(
        ["I ", "look. ", Calls("slow", {"x": 1}), Calls("ours", {"x": 2}), Calls("soon", {"x": 3})],
        ["Done."],
    )
    agent = script.agent(toolsets=[Steps(ours)])

    @agent.tool_plain(metadata=once(Policy.IDEMPOTENT))
    def slow(x: int) -> str:
        time.sleep(0.2)
        return f"{x} {current_call().idempotency_key == f'{taken.turn.run_id}:2'}"

    @agent.tool
    async def soon(ctx: RunContext[None], x: int) -> str:
        return f"{x} {ctx.tool_name}"

    own(taken, durable(agent))
    events = frames(taken)
    assert ends(events) == [
        ("slow", "ok", "1 True"),
        ("ours", "ok", {"step": 3, "x": 2}),
        ("soon", "ok", "3 soon"),
    ]
    assert [event.data["step"] for event in events if event.type == "tool_start"] == [2, 3, 4]
    assert [(name, how) for name, how, _ in script.returns()] == [
        ("slow", "success"),
        ("ours", "success"),
        ("soon", "success"),
    ]
    assert fold(events).text == "I look. \n\nDone."


def test_a_transactional_tool_of_pydantic_ai_writes_with_its_outcome(taken: Taken) -> None:
    """Its staged write is there, once, when the step is `ok`."""
    from functions import firestore

    document = firestore.client().collection("notes").document(taken.turn.run_id)
    agent = Script([Calls("note", {"text": "x"})], ["Noted."]).agent()

    @agent.tool_plain(metadata=once(Policy.TRANSACTIONAL))
    def note(text: str) -> str:
        current_call().staged.create(document, {"text": text})
        return "written"

    own(taken, durable(agent))
    assert ends(frames(taken)) == [("note", "ok", "written")]
    assert document.get().to_dict() == {"text": "x"}


@pytest.mark.parametrize(
    ("decision", "outcome", "told"),
    [
        ("approve", ("refund", "ok", "refunded 5"), ("refund", "success", "refunded 5")),
        (
            "deny",
            ("refund", "denied", {"message": "a person denied this call"}),
            ("refund", "failed", "denied: a person denied this call"),
        ),
    ],
)
def test_requires_approval_is_our_approval(
    taken: Taken, decision: str, outcome: tuple[str, str, Any], told: tuple[str, str, Any]
) -> None:
    """The turn waits; what a person decides reaches the tool, or the model."""
    script = Script([Calls("refund", {"cents": 5}), Calls("ours", {"x": 1})], ["So be it."])
    agent = script.agent(toolsets=[Steps(ours)])

    @agent.tool_plain(requires_approval=True)
    def refund(cents: int) -> str:
        return f"refunded {cents}"

    owners = own(taken, durable(agent))
    pending = frames(taken)[-1]
    assert pending.type == "tool_pending"
    assert pending.data["tool"] == "refund"
    decide.decide(
        taken.turn.owner,
        taken.turn.turn_id,
        2,
        decision,
        0,
        owners=owners,
        settings=settings(),
    )
    wait_until(lambda: load(taken).finished)
    assert ends(frames(taken)) == [outcome, ("ours", "ok", {"step": 3, "x": 1})]
    assert script.returns()[0] == told
    assert len(script.asked) == 2


def test_what_a_tool_raises_is_an_outcome(taken: Taken) -> None:
    """`ModelRetry` in its words, any other by its type alone; SystemExit ends nothing else."""
    script = Script(
        [Calls("again", {}), Calls("broken", {}), Calls("leave", {}), Calls("leave_soon", {})],
        ["Sorry."],
    )
    agent = script.agent()

    @agent.tool_plain
    def again() -> None:
        raise ModelRetry("ask for less")

    @agent.tool_plain
    def broken() -> None:
        raise RuntimeError("sk-secret")

    @agent.tool_plain
    def leave() -> None:
        sys.exit("bye")

    @agent.tool_plain
    async def leave_soon() -> None:
        sys.exit("bye")

    own(taken, durable(agent))
    events = frames(taken)
    assert [result["message"] for _, _, result in ends(events)] == [
        "ask for less",
        "the tool failed: RuntimeError",
        "the tool failed: RuntimeError",
        "the tool failed: RuntimeError",
    ]
    assert [how for _, how, _ in script.returns()] == ["failed"] * 4
    assert events[-1].type == "done"


def test_an_async_tool_that_hangs_is_cancelled_once_its_step_has_its_outcome(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep a thread of the container for ever, and each further call one more."""
    monkeypatch.setattr(tools, "GIVEN_UP_SECONDS", 2.0)
    cancelled = threading.Event()
    agent = Script([Calls("hang", {})], ["It hung."]).agent()

    @agent.tool_plain(metadata=once(timeout_seconds=0.2))
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    own(taken, durable(agent))
    assert ends(frames(taken)) == [("hang", "in_doubt", {"message": "no answer within 0.2 s"})]
    assert cancelled.wait(PATIENCE_SECONDS)
    wait_until(lambda: all(one.name != "tool-hang" for one in threading.enumerate()))


def test_arguments_that_do_not_fit_go_back_to_the_model(taken: Taken) -> None:
    """Pydantic AI asks it to try again, before any step; the next ones run as if nothing was."""
    script = Script([Calls("add", {"x": "no"})], [Calls("add", {"x": 1})], ["2"])
    agent = script.agent()

    @agent.tool_plain
    def add(x: int) -> int:
        return x + 1

    own(taken, durable(agent))
    events = frames(taken)
    assert ends(events) == [("add", "ok", 2)]
    assert events[-1].data["usage"]["requests"] == 3


@pytest.mark.parametrize(
    ("errors", "ended"),
    [
        ([ModelAuthenticationError, ModelRateLimitError], "done"),
        ([ModelRateLimitError, ModelAuthenticationError], "done"),
        ([ModelNotFoundError, ModelAuthenticationError], "error"),
    ],
)
def test_models_that_all_failed_are_asked_again_while_one_may_answer_later(
    taken: Taken, errors: list[type[ModelAPIError]], ended: str
) -> None:
    """A limit of one of them passes, whatever is wrong with the others."""
    asked: list[type[ModelAPIError]] = []

    def failing(error: type[ModelAPIError]) -> FunctionModel:
        async def answer(_messages: Any, _info: Any) -> Any:
            asked.append(error)
            if len(asked) <= len(errors):
                raise error("a-model", "sk-secret")
            yield "Here."

        return FunctionModel(stream_function=answer)

    model = FallbackModel(*[failing(error) for error in errors])
    own(taken, durable(PydanticAgent(model, name="scripted")))
    end = frames(taken)[-1]
    assert end.type == ended
    assert end.data.get("code") == (None if ended == "done" else "model_auth")


@pytest.mark.parametrize("error", [httpx2.RemoteProtocolError, httpx2.ReadTimeout, BrokenPipeError])
def test_a_connection_that_breaks_off_is_withdrawn_and_asked_again(
    taken: Taken, error: type[Exception]
) -> None:
    """Also where a provider lets the error of its HTTP client through."""
    asked: list[str] = []

    async def answer(_messages: Any, _info: Any) -> Any:
        asked.append("asked")
        yield f"try {len(asked)}"
        if len(asked) == 1:
            raise error("peer closed connection: sk-secret")

    own(taken, durable(PydanticAgent(FunctionModel(stream_function=answer), name="scripted")))
    events = frames(taken)
    assert [event.type for event in events] == ["token", "rewind", "token", "done"]
    assert fold(events).text == "try 2"


def test_thinking_is_not_told(taken: Taken) -> None:
    """It is recorded, for the model to go on with."""

    async def think(_messages: Any, _info: Any) -> Any:
        yield {0: DeltaThinkingPart(content="hidden")}
        yield "Shown."

    chat = PydanticAgent(FunctionModel(stream_function=think), name="thinker")
    own(taken, durable(chat))
    assert fold(frames(taken)).text == "Shown."
    recorded = steps.load(taken.turn.key, 1)
    assert recorded is not None
    assert ThinkingPart(content="hidden").content in recorded.result


def test_an_output_that_is_no_text_is_told_as_json(taken: Taken) -> None:
    """When the agent is done, for it comes by a tool call of the model's."""

    class Answer(BaseModel):
        cents: int

    script = Script([Calls("final_result", {"cents": 7})])
    own(taken, durable(script.agent(output_type=Answer)))
    events = frames(taken)
    assert fold(events).text == '{"cents":7}'
    assert events[-1].data["reason"] == "stop"


def test_an_agent_without_a_name_is_refused_at_once() -> None:
    """Its steps are recorded under it."""
    with pytest.raises(ValueError, match="needs a name"):
        durable(PydanticAgent(Script().model(), name=None))


def test_a_stopped_turn_ends_its_model_call(taken: Taken) -> None:
    """In the midst of its text and of its silence: nothing more is paid for."""
    said: list[int] = []
    pieces: list[Piece] = []
    for number in range(3000):
        pieces += ["word ", 0.02, Does(partial(said.append, number))]
    own(taken, durable(Script(pieces).agent()))
    wait_until(lambda: len(said) > 3)
    cancel.cancel(taken.turn.owner, taken.turn.turn_id)
    events = frames(taken)
    assert events[-1].data == {"reason": "cancelled"}
    last = -1

    def settled() -> bool:
        nonlocal last
        before, last = last, len(said)
        time.sleep(0.2)
        return before == len(said)

    wait_until(settled)
    assert len(said) < 3000


def test_an_owner_that_lost_its_lease_does_not_wait_for_a_silent_model(create: Create) -> None:
    """Its call is given up, and another container finishes the turn."""
    taken = create()
    seen: list[str] = []

    async def silent(_messages: Any, _info: Any) -> Any:
        seen.append("asked")
        try:
            await asyncio.sleep(60)
            yield "never"
        finally:
            seen.append("given up")

    own(taken, durable(PydanticAgent(FunctionModel(stream_function=silent), name="scripted")))
    wait_until(lambda: seen == ["asked"])
    taken.lease.lose("the container was starved")
    wait_until(lambda: seen == ["asked", "given up"])
    take_over(taken, durable(Script(["Here."]).agent()))
    assert fold(frames(taken)).text == "Here."


def test_a_silent_model_ends_with_the_time_of_its_turn(taken: Taken) -> None:
    """Its text is withdrawn. A tool that is called is not cut off: what it did must be known."""
    turns: list[Turn] = []
    given_up = threading.Event()
    asked = 0

    async def model(_messages: Any, _info: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            yield {0: DeltaToolCall("slow", "{}", tool_call_id="1")}
            return
        yield "half "
        turns[0]._began -= 7200
        try:
            await asyncio.sleep(3600)
        finally:
            given_up.set()

    agent = PydanticAgent(FunctionModel(stream_function=model), name="scripted")

    @agent.tool_plain
    async def slow() -> str:
        turns[0]._began -= 7200
        await asyncio.sleep(3 * CHECK_SECONDS)
        turns[0]._began += 7200
        return "done"

    own(taken, durable(agent, budget=Budget(seconds=3600), deps=turns.append))
    events = frames(taken)
    assert given_up.wait(PATIENCE_SECONDS)
    told = [event.type for event in events]
    assert told == ["tool_start", "tool_end", "token", "rewind", "error"]
    assert ends(events)[0][:2] == ("slow", "ok")
    assert events[-1].data["code"] == "budget_exceeded"


def test_what_a_model_call_raises_once_it_is_given_up_is_nobodys(
    create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    """Its turn is another owner's: asyncio would print the error, with whatever it quotes."""
    taken = create()
    seen: list[str] = []

    async def stubborn(_messages: Any, _info: Any) -> Any:
        seen.append("asked")
        try:
            await asyncio.sleep(60)
            yield "never"
        except asyncio.CancelledError:
            raise ValueError("sk-secret") from None

    owners = own(taken, durable(PydanticAgent(FunctionModel(stream_function=stubborn), name="s")))
    wait_until(lambda: seen == ["asked"])
    taken.lease.lose("the container was starved")
    wait_until(lambda: _over(owners, taken))
    gc.collect()
    assert [line for line in caplog.records if line.name == "asyncio"] == []


def _over(owners: Owners, taken: Taken) -> bool:
    """Whether the owner's thread, and the task that it waited for, are through."""
    tasks = asyncio.all_tasks(loop.running())
    return taken.turn.key not in owners._owners and not tasks


def converse(owner: str, run: Callable[[Turn], None], prompt: str) -> None:
    """One more turn of the owner's one session, to its end."""
    turn_id, long = str(uuid.uuid4()), settings()
    owners = Owners(lambda: Agent(run), long)
    admission.start(owner, turn_id, Request(prompt, "chat"), 0, owners=owners, settings=long)

    def ended() -> bool:
        turn = record.load(record.turn_key(owner, turn_id))
        return turn is not None and turn.finished

    wait_until(ended)


def test_the_turns_of_a_session_see_what_was_said() -> None:
    """As messages of Pydantic AI, tool calls included; and what other agents remembered."""
    owner = f"uid:{uuid.uuid4()}"
    converse(owner, lambda turn: turn.token("I am the demo."), "Who is there?")
    script = Script(["I ask. ", Calls("ours", {"x": 1})], ["One."])
    served = durable(script.agent(toolsets=[Steps(ours)]))
    converse(owner, served.run, "And now?")
    converse(owner, served.run, "Again?")
    told = [
        [(part.part_kind, getattr(part, "content", None)) for part in message.parts]
        for message in script.asked[2]
    ]
    assert told == [
        [("user-prompt", "Who is there?")],
        [("text", "I am the demo.")],
        [("user-prompt", "And now?")],
        [("text", "I ask. "), ("tool-call", None)],
        [("tool-return", {"step": 2, "x": 1})],
        [("text", "One.")],
        [("user-prompt", "Again?")],
    ]


def test_a_deadline_for_all_attempts_ends_the_turn_by_a_code(taken: Taken) -> None:
    """Pydantic AI's `request_timeout` is one clock for a step, its pauses included."""
    agent = Script(["Well, ", 30.0]).agent(model_settings=ModelSettings(request_timeout=0.3))
    own(taken, durable(agent))
    assert frames(taken)[-1].data["code"] == "model_unavailable"


def test_what_no_agent_here_can_read_is_left_out_of_the_history() -> None:
    """A session outlives the agents that serve it; one that left other messages does not end it."""
    mine = {"role": "user", "content": "kept"}
    assert len(messages.load([{"mine": 1}, "two", mine, {"kind": "request", "parts": 3}])) == 1


def test_many_turns_wait_for_their_tools_at_once(create: Create) -> None:
    """Each on a thread of its own: none waits for another one's slow tool."""
    together = threading.Barrier(12)
    agent = Script([Calls("meet", {})], ["Met."]).agent()

    @agent.tool_plain
    def meet() -> str:
        together.wait(PATIENCE_SECONDS)
        return "met"

    served = durable(agent)
    turns = [create() for _ in range(12)]
    for turn in turns:
        own(turn, served)
    assert [ends(frames(turn)) for turn in turns] == [[("meet", "ok", "met")]] * 12


def test_what_is_remembered_is_the_same_after_a_takeover(create: Create) -> None:
    """To the byte: ids and times are those of the turn's records, not of the run."""
    taken = create()
    remembered: list[Any] = []
    script = Script(["I ask. ", Calls("ours", {"x": 1})], ["One."])
    served = durable(script.agent(toolsets=[Steps(ours)]))

    def run(turn: Turn) -> None:
        vars(turn)["remember"] = remembered.append  # without a session, nothing would
        served.run(turn)
        if len(remembered) == 1:
            taken.lease.lose("the container died")
            turn.check()

    own(taken, Agent(run))
    wait_until(lambda: len(remembered) == 1 and taken.lease.lost)
    take_over(taken, Agent(run))
    assert frames(taken)[-1].type == "done"
    assert remembered[0] == remembered[1]
    assert len(script.asked) == 2
    kinds = [message.kind for message in messages.load(remembered[0])]
    assert kinds == ["request", "response", "request", "response"]
