"""Values and turns for tests of the shared module in this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from functions import firestore
from functions.settings import Settings
from functions.turns import journal, lease, record, takeover
from functions.turns.lease import Lease
from functions.turns.record import Record, Request
from functions.turns.takeover import Taken
from tests.support import lapse as leases
from tests.support.patience import PATIENCE_SECONDS

Create = Callable[..., Taken]

LEASE = 30.0
"""Longer than a test: nothing lapses by itself, however busy the machine is."""
LONGEST_LEASE = 60.0


def settings(**changed: float) -> Settings:
    """Settings for tests, and what is given."""
    values: dict[str, float] = {
        "threads": 16,
        "heartbeat_seconds": 0.5,
        "flush_seconds": 0.05,
        "lease_seconds": LEASE,
        "retention_hours": 24.0,
        "session_hours": 720.0,
        "response_seconds": 3600.0,
        **changed,
    }
    return Settings(project="demo-agent-turns", allowed_origins=frozenset(), **values)  # type: ignore[arg-type]  # all but threads are floats


def load(taken: Taken) -> Record:
    """The turn as it is stored now."""
    return leases.load(taken.turn.key)


def lapsed(taken: Taken) -> Record:
    """The turn once anybody may take it over, though it was just created: nobody runs it."""
    return leases.lapse(taken.turn.key)


def lapse(taken: Taken) -> Record:
    """The turn once anybody may take it over, after its owner lost its lease."""
    assert taken.lease.lost
    return lapsed(taken)


def shortened(taken: Taken, seconds: float) -> Taken:
    """The same turn under a lease of so many seconds from now on.

    One that is created with so short a lease is not there yet when a busy machine has lost it.
    """
    holder = replace(taken.lease.holder, seconds=seconds)
    sent_at = time.monotonic()
    record.reference(taken.turn.key).update({"lease": holder.to_fields()})
    return replace(taken, turn=load(taken), lease=Lease(holder, sent_at=sent_at))


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


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Firestore's answers are waited for, however long they take: where calls are counted, none is
    made again because the machine was busy. Not for leases that a test lets pass.
    """
    monkeypatch.setattr(journal, "COMMIT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(firestore, "TRY_SECONDS", PATIENCE_SECONDS)


class Ticks:
    """Stands for the stop of a renewal, whose waits are over at once; stops it after so many."""

    def __init__(self, renewals: int) -> None:
        self._left = renewals
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        """Note for how long, and say whether to stop."""
        self.waited.append(seconds)
        self._left -= 1
        return self._left < 0

    def is_set(self) -> bool:
        """Not before that."""
        return self._left < 0


def renew(taken: Taken, renewals: int) -> list[float]:
    """Renew the lease so often, one after the other, until it is lost; the pauses before them."""
    renewal = lease.Renewal(
        record.reference(taken.turn.key),
        taken.lease,
        taken.turn.updated_at,
        taken.turn.expire_at,
    )
    ticks = Ticks(renewals)
    renewal._stop = ticks  # type: ignore[assignment]  # all that a renewal uses of an event
    renewal._run()
    return ticks.waited
