"""What an author gets wrong is said where it is declared, and not by a turn that says nothing."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from pydantic import Field

from functions.errors import NotConfigured
from functions.turns.owners import Owners
from functions.turns.program import Agent
from functions.turns.tools import BadArguments, Call, Policy, tool
from tests.turns.conftest import settings


async def waits(call: Call) -> None: ...


async def streams(_call: Call) -> AsyncIterator[str]:
    yield ""


def yields(_call: Call) -> Iterator[str]:
    yield ""


def takes_any(call: Call, *words: str) -> None: ...


def takes_all(call: Call, **words: str) -> None: ...


def takes_places(call: Call, word: str, /) -> None: ...


def hides(call: Call, *, _word: str) -> None: ...


def configures(call: Call, *, model_config: str) -> None: ...


def lacks_call(word: str) -> None: ...


def fine(_call: Call, *, word: str) -> str:
    """Say a word."""
    return word


def test_a_tool_may_be_declared_without_options() -> None:
    """`@tool` is `@tool()`: called once, within a minute."""
    assert tool(fine) == tool()(fine)
    assert tool(fine).policy is Policy.ONCE


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (waits, "async"),
        (streams, "async"),
        (yields, "yields nothing"),
        (takes_any, "words"),
        (takes_all, "words"),
        (takes_places, "word"),
        (hides, "_word"),
        (configures, "model_config"),
        (lacks_call, "call: Call"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(
    function: Callable[..., Any], says: str
) -> None:
    """By its name, in words that say what to do."""
    with pytest.raises(ValueError, match=f"^{function.__name__}: .*{says}"):
        tool(function)


def test_what_a_type_is_annotated_with_holds() -> None:
    """A bound is checked, and the model is told of it and of the description."""

    @tool
    def charge(call: Call, *, cents: Annotated[int, Field(gt=0, description="of a dollar")]) -> int:
        return cents + call.step

    assert charge.check({"cents": 1}) == {"cents": 1}
    with pytest.raises(BadArguments, match=r"cents \(greater_than\)"):
        charge.check({"cents": 0})
    told = charge.json_schema["properties"]["cents"]
    assert (told["exclusiveMinimum"], told["description"]) == (0, "of a dollar")


def test_a_policy_by_its_name_is_refused() -> None:
    """A tool that says "idempotent" would else be held for `once`."""
    with pytest.raises(TypeError, match="'idempotent' is no Policy"):
        tool(policy="idempotent")(fine)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "agent",
    [
        {"run": waits},
        {"run": streams},
        {"run": yields},
        {"run": None},
        {"run": fine, "version": 1},
        {"run": fine, "accepts": "1"},
    ],
)
def test_what_cannot_be_an_agent_is_refused(agent: dict[str, Any]) -> None:
    """An async agent would end its turns at once, without a word."""
    with pytest.raises(TypeError, match="an agent's"):
        Agent(**agent)


def test_an_agent_that_ends_the_process_as_it_is_loaded_is_the_deployments_fault() -> None:
    """`sys.exit("set MY_KEY")` in somebody's module: 503, and the container serves on."""
    with pytest.raises(NotConfigured):
        Owners(lambda: sys.exit("set MY_KEY"), settings()).require_agent()


def test_a_function_instead_of_an_agent_is_the_deployments_fault() -> None:
    """`agent()` that returns the function itself, or forgets to return: 503, and no bug of ours."""
    made: Any = fine
    with pytest.raises(NotConfigured):
        Owners(lambda: made, settings()).require_agent()
