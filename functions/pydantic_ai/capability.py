"""The turn's ledger as a durability engine of Pydantic AI's: its public `durable_exec` surface.

Unlike the engines that it ships with, a model request streams its text to the client from inside
its step, while the step is journaled. Why tools go another way: docs/adr/0009.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    DurabilityEngineSpec,
    DurableOperationId,
    EventStreamHandlerId,
    JournalOperationNamer,
    ModelCancelSuspendedResponseId,
    ModelRequestId,
    RoleBasedOperationConfig,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset

from functions.pydantic_ai import failures, messages
from functions.pydantic_ai.tools import Deferring, Known, step_tool, told
from functions.turns.program import Asking, Turn

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class Ledger(CallableOperationBackend[None]):
    """Runs each durable operation of one agent run as a step of `turn`."""

    def __init__(self, turn: Turn, name: str) -> None:
        super().__init__(
            namer=JournalOperationNamer(name),
            config=RoleBasedOperationConfig(model=None, event=None, capability=None, tool=None),
        )
        self._turn = turn
        self._name = _NOT_IN_A_NAME.sub("_", name)[:40]
        self._asking: Asking | None = None
        self._said = False
        """Whether an earlier response said something: a further one begins a paragraph."""
        self._begun = False
        self.usage = {"inputTokens": 0, "outputTokens": 0, "requests": 0}
        """Of all responses so far, the recorded ones included."""
        self.cut_off = False
        """Whether the last response ended because the model had to stop short."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,  # noqa: ARG002 - the base's signature
    ) -> object:
        """The recorded result of an operation, or that of `body`, which is recorded then."""
        match operation_id:
            case EventStreamHandlerId() | ModelCancelSuspendedResponseId():
                return await body()  # nothing that a re-run needs
            case ModelRequestId():
                # The projection of a model request: its messages are the one list in it.
                asked = next(part for part in cache_key if isinstance(part, list))
                response = await self._step(self._name, messages.identity(asked), body)
                self._take(response)
                return response
            case _:
                last = _NOT_IN_A_NAME.sub("_", name.rpartition(".")[2])[:20]
                return await self._step(f"{self._name}.{last}", None, body)

    async def tell(self, _ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        """Stream the text of a response while it comes. Thinking is not told."""
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=text)) if text:
                    await self._emit(text)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                    await self._emit(text)
                case _:
                    pass

    async def _emit(self, text: str) -> None:
        assert self._asking is not None
        if self._said and not self._begun:
            text = f"\n\n{text}"
        self._begun = True
        if self._asking.full:
            await asyncio.to_thread(self._asking.emit, text)
        else:
            self._asking.emit(text)

    async def _step(self, name: str, request: Any, body: Callable[[], Awaitable[object]]) -> Any:
        turn = self._turn
        asking = await asyncio.to_thread(turn.ask, name, request)
        while not asking.answered:
            self._asking, self._begun = asking, False
            attempt = await _attempt(body)
            await asyncio.sleep(await asyncio.to_thread(turn.attempt, asking, attempt))
        return asking.response

    def _take(self, response: Any) -> None:
        """Count what a response took, the same when it is replayed."""
        usage = response.get("usage") or {}
        taken = {
            "inputTokens": usage.get("input_tokens"),
            "outputTokens": usage.get("output_tokens"),
        }
        for name, tokens in taken.items():
            self.usage[name] += tokens or 0
            self._turn.spend(tokens or 0)
        self.usage["requests"] += 1
        self.cut_off = response.get("finish_reason") == "length"
        parts = response["parts"]
        self._said |= any(part["part_kind"] == "text" and part["content"] for part in parts)


async def _attempt(body: Callable[[], Awaitable[object]]) -> Callable[[], Any]:
    """Run one attempt; what came of it, to be called."""
    try:
        response = await body()
        if isinstance(response, dict):
            failures.require_whole(response)
    except Exception as error:  # noqa: BLE001 - the turn sorts it out
        failed = failures.sort(error)

        def fail() -> Any:
            raise failed

        return fail
    return lambda: response


class Durability(BaseDurabilityCapability[Any]):
    """Attached to one run of an agent: its model requests go through `ledger`, its tools, too."""

    engine_spec = DurabilityEngineSpec(
        engine_name="agent-turns",
        durable_unit_noun="step",
        durable_container_noun="turn",
        codec=JSON_CODEC,
        wrapped_toolset_kinds=frozenset(),
        journal_discovery=False,
    )

    def __init__(self, turn: Turn, ledger: Ledger, name: str) -> None:
        super().__init__(name=name, event_stream_handler=ledger.tell)
        self._turn = turn
        self._ledger = ledger
        self._tools: Known = {}

    @property
    def in_durable_context(self) -> bool:
        """Always: it lives as long as a run inside a turn."""
        return True

    def get_durable_operation_backend(self) -> Ledger:
        """The engine."""
        return self._ledger

    def get_default_run_id(self) -> str:
        """The same in every run of the turn."""
        return self._turn.run_id

    def get_default_conversation_id(self, run_id: str) -> str:
        """The session, if there is one."""
        return self._turn.session_id or run_id

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Have every call deferred to `handle_deferred_tool_calls`."""
        return Deferring(super().get_wrapper_toolset(toolset) or toolset, self._tools)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Run the calls of one response as steps, side by side, at positions in its order."""
        calls = [
            (step_tool(self._tools, ctx, call), call.args_as_dict()) for call in requests.calls
        ]
        outcomes = await asyncio.to_thread(self._turn.call_all, calls)
        return requests.build_results(
            calls={
                call.tool_call_id: told(outcome)
                for call, outcome in zip(requests.calls, outcomes, strict=True)
            }
        )
