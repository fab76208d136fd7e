"""What is killed: the functions of an agent, and what holds for each step of its turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from functions.turns.tools import Policy


@dataclass(frozen=True)
class Subject:
    """An agent under test."""

    name: str
    source: Path
    tools: Mapping[int, Policy]
    """By position."""
    models: tuple[int, ...] = ()
    """The positions of the model calls that leave a line for each time they are made."""
    remembers: bool = False
    """Whether its turn leaves its messages in a session."""
    turn: str = ""
    """What its turn does, for the report."""


_FOLDER = Path(__file__).parent

TOOLS = Subject(
    "tools",
    _FOLDER / "served.py",
    {
        1: Policy.ONCE,
        2: Policy.IDEMPOTENT,
        3: Policy.TRANSACTIONAL,
        4: Policy.ONCE,
        5: Policy.IDEMPOTENT,
    },
    turn="calls a `once`, an `idempotent` and a `transactional` tool one after the\n"
    "other, then a `once` and an `idempotent` one side by side",
)

PYDANTIC = Subject(
    "pydantic",
    _FOLDER / "served_pydantic.py",
    {2: Policy.ONCE, 3: Policy.IDEMPOTENT, 5: Policy.TRANSACTIONAL, 6: Policy.IDEMPOTENT},
    models=(1, 4, 7),
    remembers=True,
    turn="is that of a Pydantic AI agent: three model calls that stream, and after\n"
    "the first and the second of them two tools side by side",
)

SUBJECTS = {subject.name: subject for subject in (TOOLS, PYDANTIC)}
