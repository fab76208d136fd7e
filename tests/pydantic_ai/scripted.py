"""A Pydantic AI model that says and calls what it is told, and turns that it runs in."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from functions.turns.owners import Owners
from functions.turns.program import Agent
from functions.turns.takeover import Taken
from functions.wire import sse
from tests.support.patience import wait_until
from tests.turns.conftest import lapse, load, settings
from tests.turns.test_writer import stored


@dataclass(frozen=True)
class Calls:
    """A tool call of a response."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Does:
    """Something that happens in the midst of a response."""

    what: Callable[[], None]


Piece = str | float | Calls | Does
"""Of a response: text, seconds of silence, a call, or what happens."""


class Script:
    """What a model says, response by response of one turn; what it was asked."""

    def __init__(self, *responses: list[Piece]) -> None:
        self._responses = responses
        self.asked: list[list[ModelMessage]] = []

    def model(self) -> FunctionModel:
        """The model."""
        return FunctionModel(stream_function=self._answer)

    def agent(self, **how: Any) -> PydanticAgent[None, Any]:
        """An agent over it."""
        return PydanticAgent(self.model(), name="scripted", **how)

    def returns(self) -> list[tuple[str, str, Any]]:
        """The tool results that the model was told last: the tool, `success` or not, content."""
        return [
            (part.tool_name, part.outcome, part.content)
            for message in self.asked[-1]
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]

    async def _answer(
        self, messages: list[ModelMessage], _info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        self.asked.append(messages)
        prompts = [
            index
            for index, message in enumerate(messages)
            if any(isinstance(part, UserPromptPart) for part in message.parts)
        ]
        this_turn = messages[prompts[-1] :]
        number = sum(isinstance(message, ModelResponse) for message in this_turn)
        for index, item in enumerate(self._responses[number]):
            match item:
                case str():
                    yield item
                case float():
                    await asyncio.sleep(item)
                case Does(what):
                    what()
                case Calls(tool, args):
                    made = DeltaToolCall(tool, json.dumps(args), tool_call_id=uuid.uuid4().hex)
                    yield {index: made}


def own(taken: Taken, agent: Agent) -> Owners:
    """Run a turn by an agent, as a container that just created it."""
    served = replace(agent, version=taken.turn.agent_version)
    owners = Owners(lambda: served, settings(lease_seconds=taken.lease.holder.seconds))
    owners.own(taken)
    return owners


def take_over(taken: Taken, agent: Agent) -> None:
    """Run a turn by the agent of another container, now that its lease is lost."""
    owners = Owners(lambda: agent, settings(lease_seconds=30))
    turn = lapse(taken)

    def taken_over() -> bool:
        if owners.writer(turn.key) is None:
            owners.take_over(turn)
        return load(taken).holder.epoch > turn.holder.epoch

    wait_until(taken_over)


def frames(taken: Taken) -> list[sse.Frame]:
    """The journal of a turn, once it has ended, or waits."""
    wait_until(lambda: load(taken).status != "running")
    return list(sse.decode(stored(taken)))


def ends(events: list[sse.Frame]) -> list[tuple[str, str, Any]]:
    """What became of the tool calls: by position."""
    found = [event.data for event in events if event.type == "tool_end"]
    found.sort(key=lambda end: int(end["step"]))
    return [(end["tool"], end["status"], end["result"]) for end in found]
