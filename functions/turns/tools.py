"""Declaring tools: what a tool takes, how long it may run, and what "once" means for it.

    @tool(policy=Policy.IDEMPOTENT, timeout_seconds=30)
    def charge(call: Call, *, order: str, cents: int) -> dict[str, Any]:
        return payments.charge(order, cents, key=call.idempotency_key)

The first parameter is the `Call`; the others are what the model may give, with types that JSON has.
"""

from __future__ import annotations

import enum
import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from functions.wire.text import has_surrogates

if TYPE_CHECKING:
    from google.cloud.firestore import Transaction
    from pydantic import BaseModel

MAX_NAME_CHARS = 200
"""Of a tool's name: it is in each of its events, and in its step's document."""

MAX_WRONG_CHARS = 1000
"""Of what is wrong with arguments, so much is told: each item of a long list may be."""


class Policy(enum.Enum):
    """What holds when the container dies between the call and the record of its outcome."""

    TRANSACTIONAL = "transactional"
    """The tool's effects are writes staged on `call.staged`, the Firestore transaction that also
    records the outcome: exactly once. The tool may run more than once, its effects take place
    once."""
    IDEMPOTENT = "idempotent"
    """The tool may be called again with the same `call.idempotency_key`."""
    ONCE = "once"
    """Called at most once by a live owner. When nobody can know whether it took effect, the step
    is `in_doubt`: recorded, told, never run again."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool knows of the call that it serves."""

    step: int
    """The step's position in the turn."""
    idempotency_key: str
    """The same in every run of this step, and of no other step of any turn."""
    transaction: Transaction | None = None
    """Of a transactional tool."""

    @property
    def staged(self) -> Transaction:
        """The transaction to read with (`get`, before the first write) and to stage writes on.

        Raises TypeError when the tool is not declared transactional.
        """
        if self.transaction is None:
            raise TypeError("only a transactional tool has a transaction")
        return self.transaction


class ToolError(Exception):
    """Raised by a tool to tell the model, and the client, what went wrong in these words."""


@dataclass(frozen=True, slots=True)
class Happened:
    """What `reconcile` answers when it knows that the call took effect."""

    result: Any


class BadArguments(Exception):
    """The arguments do not fit the tool's parameters; the message names them, not their values."""


@dataclass(frozen=True)
class Tool:
    """A declared tool."""

    run: Callable[..., Any]
    policy: Policy = Policy.ONCE
    timeout_seconds: float = 60.0
    approval_seconds: float | None = None
    """How long a person has to approve a call; None: it needs no approval."""
    reconcile: Callable[..., Happened | None] | None = None
    """Of a `once` tool: asked, with the same parameters, whether a call whose outcome is not known
    took effect. None: it cannot know. Its answer never leads to a call."""

    def __post_init__(self) -> None:
        """Refuse declarations that would not hold what they say."""
        if not 0 < len(self.name) <= MAX_NAME_CHARS or has_surrogates(self.name):
            raise ValueError(f"a tool needs a name of 1 to {MAX_NAME_CHARS} characters of Unicode")
        if not isinstance(self.policy, Policy):
            raise TypeError(f"{self.name}: {self.policy!r} is no Policy, such as Policy.ONCE")
        for name in ("timeout_seconds", "approval_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < math.inf:
                raise ValueError(f"{self.name}: {name} must be a number above 0")
        if self.reconcile is not None and self.policy is not Policy.ONCE:
            raise ValueError(f"{self.name}: only a `once` tool can be in doubt, and be reconciled")
        parameters = list(inspect.signature(self.run).parameters.values())
        if not parameters or parameters[0].name.lstrip("_") != "call":
            raise ValueError(f"{self.name}: the first parameter must be `call: Call`")

    @property
    def name(self) -> str:
        """The function's name: what the model, the client and the ledger know it by."""
        return str(self.run.__name__)

    @property
    def description(self) -> str:
        """The function's docstring, for the model."""
        return inspect.getdoc(self.run) or ""

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """The parameters as a Pydantic model. Pydantic is imported at the first call of a tool."""
        from pydantic import ConfigDict, create_model

        hints = typing.get_type_hints(self.run, include_extras=True)
        fields: dict[str, Any] = {}
        for parameter in list(inspect.signature(self.run).parameters.values())[1:]:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints.get(parameter.name, Any), default)
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    @property
    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters, for the model."""
        return self.parameters.model_json_schema()

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises BadArguments."""
        from pydantic import ValidationError

        parameters = self.parameters
        try:
            checked = parameters.model_validate(dict(args))
        except ValidationError as error:
            wrong = ", ".join(
                f"{'.'.join(map(str, item['loc'])) or 'arguments'} ({item['type']})"
                for item in error.errors(include_input=False, include_url=False)
            )
            told = wrong if len(wrong) <= MAX_WRONG_CHARS else f"{wrong[:MAX_WRONG_CHARS]} …"
            raise BadArguments(f"{self.name}: {told}") from None
        except Exception as error:  # of a validator of the tool's own
            raise BadArguments(f"{self.name}: the arguments cannot be checked") from error
        return {name: getattr(checked, name) for name in type(checked).model_fields}


@overload
def tool(run: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    policy: Policy = ...,
    timeout_seconds: float = ...,
    approval_seconds: float | None = ...,
    reconcile: Callable[..., Happened | None] | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    run: Callable[..., Any] | None = None,
    /,
    *,
    policy: Policy = Policy.ONCE,
    timeout_seconds: float = 60.0,
    approval_seconds: float | None = None,
    reconcile: Callable[..., Happened | None] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare the decorated function as a tool: by `@tool`, or with options.

    Raises ValueError for what cannot hold, TypeError for a policy that is none.
    """

    def declare(run: Callable[..., Any]) -> Tool:
        _require_plain(run)
        return Tool(run, policy, timeout_seconds, approval_seconds, reconcile)

    return declare if run is None else declare(run)


def _require_plain(run: Callable[..., Any]) -> None:
    """Raise ValueError for a function that a call could not run to its end, or whose arguments a
    model could not name.
    """
    if inspect.iscoroutinefunction(run) or inspect.isasyncgenfunction(run):
        raise ValueError(f"{run.__name__}: a tool is no async function: call asyncio.run inside it")
    if inspect.isgeneratorfunction(run):
        raise ValueError(f"{run.__name__}: a tool returns its result, and yields nothing")
    for parameter in list(inspect.signature(run).parameters.values())[1:]:
        by_name = parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
        # Pydantic takes the others for its own, and leaves them out.
        if not by_name or parameter.name.startswith("_") or parameter.name == "model_config":
            raise ValueError(f"{run.__name__}: a model cannot name the parameter {parameter}")
