"""Tools of each policy, whose calls are counted outside of the process and of Firestore."""

from __future__ import annotations

import os
import time

from google.cloud.firestore import Increment

from functions import firestore
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
