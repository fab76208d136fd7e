"""What one turn may use up: bounds that end a turn that would go on for ever. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from functions.errors import TurnFailed


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one turn may take. Checked when a step is to be begun: what is recorded is
    never refused, so a re-run meets the end where the first run did.
    """

    model_steps: int = 50
    tool_calls: int = 200
    tokens: int = 1_000_000
    """Of all models together, as `Turn.spend` was told. The response that goes over it counts
    still; the next model step is refused."""
    seconds: float = 3600.0
    """In which somebody owned the turn: neither the wait for a person nor the time between a crash
    and the takeover counts. Checked in the midst of a model step, too."""

    def __post_init__(self) -> None:
        """Refuse bounds under which nothing could run."""
        bounds = (self.model_steps, self.tool_calls, self.tokens)
        if not all(bound >= 0 for bound in bounds) or not self.seconds > 0:
            raise ValueError("a budget's bounds are not negative, and its seconds above 0")


@dataclass(slots=True)
class Spent:
    """What a turn has used up so far, counted by its positions and its recorded responses."""

    model_steps: int = 0
    tool_calls: int = 0
    tokens: int = 0

    def require(self, budget: Budget, seconds: float) -> None:
        """Raise TurnFailed, which names the bound, when another step would be over `budget`.

        The counts include that step; `tokens` are those of the steps before it.
        """
        if self.model_steps > budget.model_steps:
            raise _exceeded(f"{budget.model_steps} model steps")
        if self.tool_calls > budget.tool_calls:
            raise _exceeded(f"{budget.tool_calls} tool calls")
        if self.tokens > budget.tokens:
            raise _exceeded(f"{budget.tokens} tokens")
        require_time(budget, seconds)


def require_time(budget: Budget, seconds: float) -> None:
    """Raise TurnFailed when a turn that took so many seconds may not go on."""
    if seconds > budget.seconds:
        raise _exceeded(f"{budget.seconds:g} seconds")


def _exceeded(bound: str) -> TurnFailed:
    return TurnFailed("budget_exceeded", f"the turn may take no more than {bound}")
