"""What a look at a turn comes to, and an owner that is let go."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from functions.turns import record
from functions.turns.finish import Do, finish, judge
from functions.turns.lease import Holder
from functions.turns.owners import Owners
from functions.turns.program import Agent, Turn
from functions.turns.queue import Queue
from functions.turns.record import Record, Request
from tests.support.patience import PATIENCE_SECONDS
from tests.support.queue import TaskQueue
from tests.turns.conftest import Create, lapsed, load, settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = 9.0
LOOK = 27.0


def turn(status: str = record.RUNNING, *, silent: float = 1, waits: float | None = None) -> Record:
    """A turn last written `silent` seconds ago, whose approval ends `waits` seconds from now."""
    fields = record.new_fields(
        "o",
        "t",
        Request("p", None),
        Holder.first(LEASE),
        agent_version="1",
        now=NOW,
        retention_hours=24,
    )
    fields["status"] = status
    fields["waitingUntil"] = None if waits is None else NOW + timedelta(seconds=waits)
    return record.from_fields(
        "k", fields, created_at=NOW, read_at=NOW, updated_at=NOW - timedelta(seconds=silent)
    )


@pytest.mark.parametrize(
    ("found", "do", "seconds"),
    [
        (None, Do.NOTHING, 0),
        (turn(record.DONE), Do.NOTHING, 0),
        (turn(record.ERROR, silent=100), Do.NOTHING, 0),
        (turn(record.CANCELLED, silent=100), Do.NOTHING, 0),
        (replace(turn(silent=100), expire_at=NOW), Do.NOTHING, 0),
        (turn(), Do.LOOK_AGAIN, LOOK),
        (turn(silent=LEASE + 0.5), Do.LOOK_AGAIN, LOOK),
        (turn(silent=LEASE + 0.6), Do.TAKE_OVER, 0),
        (replace(turn(silent=0.1), holder=Holder.first(LEASE).released()), Do.LOOK_AGAIN, 1),
        (replace(turn(silent=0.6), holder=Holder.first(LEASE).released()), Do.TAKE_OVER, 0),
        (turn(record.WAITING, silent=100, waits=3600), Do.LOOK_AGAIN, 3601),
        (turn(record.WAITING, silent=100, waits=0), Do.TAKE_OVER, 0),
    ],
)
def test_a_look_comes_to(found: Record | None, do: Do, seconds: float) -> None:
    """Over: nothing. Owned: later. Waiting: when the approval ends. Lapsed: take it over."""
    verdict = judge(found, LOOK)
    assert (verdict.do, verdict.seconds) == (do, seconds)


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_an_owner_is_let_go_when_its_request_ends(create: Create) -> None:
    """The turn stays as it is for the next one, and is looked at soon."""
    taken = create()
    lapsed(taken)
    began, stopped = threading.Event(), threading.Event()

    def run(turn: Turn) -> None:
        began.set()
        try:
            while True:
                turn.token("on and on ")
                time.sleep(0.02)
        except BaseException:
            stopped.set()
            raise

    owners = Owners(lambda: Agent(run), settings())
    while not began.is_set():  # on a busy machine a request may end before that
        until = time.monotonic() + 1.5
        again = finish(taken.turn.key, owners=owners, settings=settings(), until=until)
        assert again is not None
        assert again <= settings().lease_seconds
    assert stopped.wait(PATIENCE_SECONDS)
    assert load(taken).status == record.RUNNING
    assert load(taken).holder.epoch >= 2


def test_every_turn_is_scheduled_however_many_start_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue takes its time with the first of them: the others wait, and hold nobody up."""
    hold = threading.Event()
    with TaskQueue(hold=hold) as tasks:
        monkeypatch.setenv("CLOUD_TASKS_EMULATOR_HOST", tasks.address)
        queue = Queue(settings())
        before = threading.active_count()
        for number in range(40):
            queue.look_later(f"{number:040x}")
        assert threading.active_count() - before < 40
        hold.set()
        assert len({task.turn for task in tasks.tasks(40)}) == 40
