"""The functions under test: the deployed ones, over an agent that calls a tool of each policy.

Every call leaves a line in the file that the prompt names, outside of the process and of Firestore.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from firebase_functions import https_fn
from flask import Request, Response
from google.cloud.firestore import Increment

from functions import firestore
from functions.endpoints import resume, start
from functions.endpoints.service import Service
from functions.turns.program import Agent, Turn
from functions.turns.tools import Call, Policy, tool

COUNTERS = "kills"
"""The collection in which the transactional tool counts, by idempotency key."""

_BEFORE_SECONDS = 0.03
_AFTER_SECONDS = 0.03


def leave(call: Call, path: str) -> dict[str, int]:
    """Take effect in the midst of the call: a line that holds its key."""
    time.sleep(_BEFORE_SECONDS)
    line = f"{call.idempotency_key}\n".encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)  # one write: whole, or not there
    finally:
        os.close(file)
    time.sleep(_AFTER_SECONDS)
    return {"step": call.step}


@tool()
def once(call: Call, *, path: str) -> dict[str, int]:
    """Take effect where nobody can look."""
    return leave(call, path)


@tool(policy=Policy.IDEMPOTENT)
def again(call: Call, *, path: str) -> dict[str, int]:
    """Take effect where a repeated key changes nothing."""
    return leave(call, path)


@tool(policy=Policy.TRANSACTIONAL)
def booked(call: Call, *, path: str) -> dict[str, int]:
    """Take effect in Firestore; the line counts how often the body ran."""
    counter = firestore.client().collection(COUNTERS).document(call.idempotency_key)
    call.staged.set(counter, {"count": Increment(1)}, merge=True)
    return leave(call, path)


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


service = Service(lambda: Agent(run, version="kills-1"))


@https_fn.on_request()
def start_turn(request: Request) -> Response:
    """Start a turn, or attach to it."""
    return start.start_turn(request, service)


@https_fn.on_request()
def resume_turn(request: Request) -> Response:
    """Stream a turn from the caller's cursor on."""
    return resume.resume_turn(request, service)
