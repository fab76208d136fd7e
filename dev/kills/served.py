"""The functions of `main`, with an agent that calls a tool of each policy.

Every call leaves a line in the file that the prompt names.
"""

from __future__ import annotations

from pathlib import Path

import main
from dev.kills.effects import again, booked, once
from functions.endpoints.service import Service
from functions.turns.program import Agent, Turn
from main import resume_turn, start_turn

__all__ = ["resume_turn", "start_turn"]

STEPS = {1: once, 2: again, 3: booked, 4: once, 5: again}
"""The tool at each position; 4 and 5 are called side by side."""


def run(turn: Turn) -> None:
    """Call each tool, and two at once; tell what came of each."""
    path = turn.prompt
    assert Path(path).is_absolute()
    turn.token("Begin.")
    for position in (1, 2, 3):
        outcome = turn.call(STEPS[position], path=path)
        turn.token(f" {position}:{outcome.status}")
    pair = turn.call_all([(STEPS[position], {"path": path}) for position in (4, 5)])
    for position, outcome in zip((4, 5), pair):
        turn.token(f" {position}:{outcome.status}")
    turn.token(" End.")


main.service = Service(lambda: Agent(run, version="kills-1"))
