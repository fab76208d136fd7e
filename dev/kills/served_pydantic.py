"""The functions of `main`, with a Pydantic AI agent: three model calls, four tools.

The model runs in this process, and leaves a line for each time it is asked. It makes up ids for its
calls, as real ones do: after a takeover they must be the recorded ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

import main
from dev.kills.effects import again, booked, leave
from dev.kills.effects import once as once_tool
from functions.endpoints.service import Service
from functions.pydantic_ai import Steps, current_call, durable
from functions.pydantic_ai import once as what_once_means
from functions.turns.tools import Policy
from main import resume_turn, start_turn

__all__ = ["resume_turn", "start_turn"]

_CALLS = [(1, ("once", "again")), (4, ("booked", "noted")), (7, ())]
"""Of each response: its position, and the tools that it calls."""
_PIECE_SECONDS = 0.03


async def _answer(
    messages: list[ModelMessage], _info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    """Say something and call the next tools; in the end, what came of all of them."""
    responses = sum(isinstance(message, ModelResponse) for message in messages)
    position, names = _CALLS[responses]
    path = str(messages[0].parts[0].content)  # type: ignore[union-attr]  # the prompt
    _leave_line(path, f"asked:{position}")
    for word in f"This is response {responses + 1}.{_told(messages)} So be it.".split(" "):
        await asyncio.sleep(_PIECE_SECONDS)
        yield f"{word} "
    for index, name in enumerate(names):
        args = json.dumps({"path": path})
        yield {index: DeltaToolCall(name, args, tool_call_id=uuid.uuid4().hex)}


def _told(messages: list[ModelMessage]) -> str:
    """What the model was told of its calls, in the last response alone."""
    returns = [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    if len(returns) < sum(len(names) for _, names in _CALLS):
        return ""
    statuses = [
        "ok" if part.outcome == "success" else str(part.content).partition(":")[0]
        for part in returns
    ]
    return "".join(f" {at}:{status}" for at, status in zip((2, 3, 5, 6), statuses))


def _leave_line(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


_agent = PydanticAgent(
    FunctionModel(stream_function=_answer),
    name="kills",
    toolsets=[Steps(once_tool, again, booked)],
)


@_agent.tool_plain(metadata=what_once_means(Policy.IDEMPOTENT))
def noted(path: str) -> dict[str, Any]:
    """Take effect in a tool of Pydantic AI's."""
    return leave(current_call(), path)


_served = durable(_agent, version="kills-1")
main.service = Service(lambda: _served)
