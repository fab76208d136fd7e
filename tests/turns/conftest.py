"""Values and turns for tests of the shared module in this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from functions.settings import Settings
from functions.turns import record, takeover
from functions.turns.record import Record, Request
from functions.turns.takeover import Taken

Create = Callable[..., Taken]


def settings(**changed: float) -> Settings:
    """Settings for tests: a lease of 1 s and what is given."""
    values: dict[str, float] = {
        "threads": 16,
        "heartbeat_seconds": 0.5,
        "flush_seconds": 0.05,
        "lease_seconds": 1.0,
        "retention_hours": 24.0,
        "session_hours": 720.0,
        "response_seconds": 3600.0,
        **changed,
    }
    return Settings(project="demo-agent-turns", allowed_origins=frozenset(), **values)  # type: ignore[arg-type]  # all but threads are floats


def lapse(taken: Taken) -> Record:
    """The turn once nobody has it any more, after its lease was lost: at once, however long the
    lease is. With a long one a test does not lose it by itself, on a busy machine.
    """
    assert taken.lease.lost
    record.reference(taken.turn.key).update({"lease.seconds": 0})
    until = time.monotonic() + 20
    while True:
        turn = record.load(taken.turn.key)
        assert turn is not None
        if turn.lapsed:
            return turn
        assert time.monotonic() < until, "took too long"
        time.sleep(0.05)


@pytest.fixture
def create() -> Create:
    """Create a turn of its own and take its first lease."""

    def make(prompt: str = "hello", **changed: float) -> Taken:
        taken = takeover.create(
            f"owner-{uuid.uuid4()}",
            str(uuid.uuid4()),
            Request(prompt, None),
            agent_version="1",
            settings=settings(**changed),
        )
        assert taken is not None
        return taken

    return make
