"""Tools: ours handed to a Pydantic AI agent, and Pydantic AI's run as steps of the ledger.

Every call of a response is deferred, in Pydantic AI's words: the ledger runs them side by side, in
the model's order, and hands the outcomes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from threading import TIMEOUT_MAX
from typing import Any

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart, ToolReturn
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, core_schema, to_jsonable_python

from functions.turns.program import Outcome
from functions.turns.tools import BadArguments, Call, Happened, Policy, Tool, ToolError

APPROVAL_SECONDS = 3600.0
"""How long a person has to decide on a tool that `requires_approval` and says no other time."""

GIVEN_UP_SECONDS = 30.0
"""A call that hangs is cancelled so long after its time, when its step has its outcome: it would
keep its thread for ever."""

_KEY = "agent_turns"
_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
_MALFORMED_TRIES = 2

_call: ContextVar[Call] = ContextVar("call")


def current_call() -> Call:
    """The call that a Pydantic AI tool serves: its idempotency key, its transaction.

    Raises LookupError outside of a turn.
    """
    return _call.get()


def once(
    policy: Policy = Policy.ONCE,
    *,
    timeout_seconds: float = 60.0,
    approval_seconds: float | None = None,
    reconcile: Callable[..., Happened | None] | None = None,
) -> dict[str, Any]:
    """What "once" means for a Pydantic AI tool: `@agent.tool(metadata=once(Policy.IDEMPOTENT))`.

    As for `functions.turns.tools.tool`. A tool without it is `once`, and has a minute.
    """
    return {
        _KEY: {
            "policy": policy,
            "timeout_seconds": timeout_seconds,
            "approval_seconds": approval_seconds,
            "reconcile": reconcile,
        }
    }


class Steps(AbstractToolset[Any]):
    """This package's tools for a Pydantic AI agent: `toolsets=[Steps(charge, refund)]`."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @property
    def id(self) -> str | None:
        """A name among the agent's toolsets."""
        return "steps"

    async def get_tools(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the base's signature
    ) -> dict[str, ToolsetTool[Any]]:
        """As the model is told of them."""
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=name,
                    description=tool.description,
                    parameters_json_schema=tool.json_schema,
                    metadata={_KEY: tool},
                ),
                max_retries=_MALFORMED_TRIES,
                args_validator=_ANY_OBJECT,  # the ledger checks them, and records what does not fit
            )
            for name, tool in self._tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Never called: a step is the ledger's."""
        raise NotImplementedError(f"{name} runs as a step of a turn only")


Known = dict[str, tuple[AbstractToolset[Any], ToolsetTool[Any]]]
"""The tools of a run by name, each with what calls it."""


@dataclass
class Deferring(WrapperToolset[Any]):
    """Defers every call to `known`, the ledger's side of it, which learns of the tools here."""

    known: Known = field(default_factory=dict)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of this step of the run."""
        tools = await self.wrapped.get_tools(ctx)
        self.known.update({name: (self.wrapped, tool) for name, tool in tools.items()})
        return {
            name: replace(tool, tool_def=replace(tool.tool_def, kind="external"))
            for name, tool in tools.items()
        }


def step_tool(known: Known, ctx: RunContext[Any], call: ToolCallPart) -> Tool:
    """A tool as the ledger runs it for one call. To be made on the run's event loop."""
    toolset, tool = known[call.tool_name]
    declared = (tool.tool_def.metadata or {}).get(_KEY, {})
    if isinstance(declared, Tool):
        return declared
    loop = asyncio.get_running_loop()
    context = replace(
        ctx, tool_name=call.tool_name, tool_call_id=call.tool_call_id, tool_call_approved=True
    )

    def run(call: Call, /, **args: Any) -> Any:
        _call.set(call)  # this thread is the call's; the task that it makes inherits it
        name = tool.tool_def.name
        work = _guarded(toolset.call_tool(name, args, context, tool))
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(min(made.timeout_seconds + GIVEN_UP_SECONDS, TIMEOUT_MAX))
        finally:
            future.cancel()

    run.__name__ = tool.tool_def.name
    if tool.tool_def.kind == "unapproved":
        declared = {**declared, "approval_seconds": declared.get("approval_seconds")}
        declared["approval_seconds"] = declared["approval_seconds"] or APPROVAL_SECONDS
    made = _Adapted(run, **declared, validator=tool.args_validator)
    return made


@dataclass(frozen=True)
class _Adapted(Tool):
    """A Pydantic AI tool, whose arguments its own schema checks."""

    validator: Any = None

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        try:
            checked: dict[str, Any] = self.validator.validate_python(dict(args))
        except ValidationError as error:
            raise BadArguments(f"{self.name}: {error.error_count()} arguments do not fit") from None
        return checked


async def _guarded(work: Coroutine[Any, Any, Any]) -> Any:
    """The tool's result as JSON; its words for the model, if it fails in such."""
    try:
        result = await work
    except (ModelRetry, ToolFailed) as error:
        raise ToolError(error.message) from None
    except (SystemExit, KeyboardInterrupt) as error:  # would end every turn's loop
        raise RuntimeError(type(error).__name__) from None
    if isinstance(result, ToolReturn):
        result = result.return_value
    return to_jsonable_python(result)


def told(outcome: Outcome) -> ToolReturn | ToolFailed:
    """An outcome as the model learns it."""
    if outcome.status == "ok":
        return ToolReturn(outcome.result)
    return ToolFailed(f"{outcome.status}: {outcome.result['message']}")
