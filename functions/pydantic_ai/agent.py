"""A Pydantic AI agent as an agent of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.exceptions import (
    ModelAPIError,
    OutputTokenLimitExceeded,
    UnexpectedModelBehavior,
)
from pydantic_ai.models import infer_model
from pydantic_ai.usage import UsageLimits
from pydantic_core import to_json

from functions.pydantic_ai import failures, loop, messages
from functions.pydantic_ai.capability import Durability, Ledger
from functions.turns.program import Agent, Budget, Turn

_BY_THE_BUDGET = UsageLimits(request_limit=None)
"""The turn's budget ends what would go on for ever, and says so."""


def durable(
    agent: PydanticAgent[Any, Any],
    *,
    version: str = "1",
    accepts: frozenset[str] = frozenset(),
    budget: Budget | None = None,
    deps: Callable[[Turn], Any] | None = None,
) -> Agent:
    """The agent to serve. `deps` makes the run's dependencies; they must come out the same in every
    run of a turn, as far as steps depend on them.

    A model that is named by a string is made here, once, so that its connections are kept. Text
    streams as it comes; an output that is no text is told as JSON when the agent is done.
    Raises ValueError when `agent` has no name: its steps are recorded under it.
    """
    name = agent.name
    if not name:
        raise ValueError("the agent needs a name: Agent(…, name='shop')")
    if isinstance(agent.model, str) and not agent.root_capability.has_resolve_model_id:
        agent.model = infer_model(agent.model)

    def run(turn: Turn) -> None:
        ledger = Ledger(turn, name)
        try:
            loop.run(_run(agent, turn, ledger, deps), turn.wait)
        finally:
            turn.conclude(reason="length" if ledger.cut_off else "stop", usage=ledger.usage)

    return Agent(run, version=version, accepts=accepts, budget=budget or Budget())


async def _run(
    agent: PydanticAgent[Any, Any],
    turn: Turn,
    ledger: Ledger,
    deps: Callable[[Turn], Any] | None,
) -> None:
    try:
        result = await agent.run(
            turn.prompt,
            message_history=messages.load(turn.history),
            deps=None if deps is None else deps(turn),
            capabilities=[Durability(turn, ledger, agent.name or "")],
            usage_limits=_BY_THE_BUDGET,
        )
    except OutputTokenLimitExceeded:
        return  # what was said stands, and `done` says that it is not all
    except (ModelAPIError, UnexpectedModelBehavior) as error:
        raise failures.ending(error) from None
    if not isinstance(result.output, str):
        turn.token(to_json(result.output).decode())
    turn.remember(messages.dump(result.new_messages(), turn.started_at))
