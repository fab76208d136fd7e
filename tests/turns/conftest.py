"""Values and turns for tests of the shared module in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from functions.settings import Settings
from functions.turns import takeover
from functions.turns.record import Request
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
