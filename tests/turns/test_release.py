"""Giving the lease back (L4): a container that is about to end, and what may cross that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from functions.errors import Draining
from functions.turns import cancel, journal, record, takeover
from functions.turns.lease import MARGIN_SECONDS
from functions.turns.owners import Owners
from functions.turns.program import Agent, Turn
from functions.turns.record import Record
from functions.turns.takeover import Taken
from functions.turns.tools import Call, tool
from functions.wire import sse
from tests.support.firestore_proxy import Answer, DropAnswer, FirestoreProxy, Hold, touches
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import LONGEST_LEASE, Create, lapsed, load, settings

TURN = touches(r"agent_turns/[^/]+")
pytestmark = pytest.mark.emulator


def talk(turn: Turn) -> None:
    """Say something every hundredth of a second, for ever."""
    number = 0
    while True:
        number += 1
        turn.token(f"{number} ")
        time.sleep(0.01)


def owning(taken: Taken, run: Callable[[Turn], None] = talk, **changed: float) -> Owners:
    """A process that owns the turn, and has shown something."""
    owners = Owners(lambda: Agent(run), settings(**changed))
    writer = owners.own(taken)
    assert writer.read(0, timeout_seconds=PATIENCE_SECONDS).frames
    return owners


def wait_until_lapsed(taken: Taken) -> Record:
    """The turn, once it may be taken over."""
    wait_until(lambda: load(taken).lapsed)
    return load(taken)


def released(taken: Taken) -> bool:
    """Whether the stored lease is given back."""
    return load(taken).holder.seconds == 0


def test_a_released_turn_may_be_taken_after_the_margin(storage: None, create: Create) -> None:
    """Everything shown is committed; nothing follows it; the next owner goes on after it."""
    assert storage is None
    taken = create()
    owners = owning(taken)
    writer = owners.writer(taken.turn.key)
    assert writer is not None
    owners.drain(within_seconds=PATIENCE_SECONDS)
    shown = writer._feed.last
    turn = load(taken)
    assert turn.status == record.RUNNING
    assert turn.holder.epoch == 1
    assert turn.holder.seconds == 0
    assert not turn.holder.lapsed(turn.updated_at, turn.updated_at), "the margin stays"
    assert turn.holder.lapses_in(turn.updated_at, turn.updated_at) == MARGIN_SECONDS
    tail = journal.tail(taken.turn.key)
    assert tail is not None
    assert (tail.last, tail.frames) == (shown, b"")
    own = settings(lease_seconds=20)
    again = takeover.take_over(wait_until_lapsed(taken), settings=own)
    assert again is not None
    assert again.turn.holder.epoch == 2
    assert again.turn.holder.seconds == 20, "its length is the taker's own again"
    assert again.begins is not None
    assert (again.begins.index, again.begins.after) == (tail.index + 1, shown)


def test_a_container_that_drains_takes_no_turn(storage: None, create: Create) -> None:
    """Neither a new one nor one that lapsed."""
    assert storage is None
    owners = Owners(lambda: Agent(talk), settings())
    owners.drain(within_seconds=PATIENCE_SECONDS)
    with pytest.raises(Draining):
        owners.require_room()
    taken = create()
    owners.take_over(lapsed(taken))
    assert owners.writer(taken.turn.key) is None
    assert owners.must_leave(taken.turn.key)
    assert load(taken).holder.epoch == 1


def test_a_renewal_that_is_under_way_does_not_bring_the_lease_back(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """It is stopped before the release is sent, and its precondition fails after it."""
    taken = create(lease_seconds=12)  # renewed after a third of that
    go = threading.Event()
    renewal = faulty_storage.inject("Commit", Hold(go), when=TURN, times=1)
    owners = owning(taken)
    renewal.wait()
    owners.drain(within_seconds=PATIENCE_SECONDS)
    assert released(taken)
    go.set()
    (call,) = faulty_storage.wait_for(
        "Commit", lambda call: call.rule is renewal and call.upstream is not None
    )
    assert call.upstream == "FAILED_PRECONDITION"
    assert released(taken)


@pytest.mark.parametrize(
    "fault",
    [
        DropAnswer("UNAVAILABLE"),
        DropAnswer("DEADLINE_EXCEEDED"),
        Answer("ABORTED"),
        Answer("UNAVAILABLE"),
    ],
    ids=str,
)
def test_a_release_whatever_it_is_answered(
    faulty_storage: FirestoreProxy, create: Create, fault: Answer | DropAnswer
) -> None:
    """Applied once, and known to be applied."""
    taken = create()
    owners = owning(taken)
    writer = owners.writer(taken.turn.key)
    assert writer is not None
    rule = faulty_storage.inject("Commit", fault, when=TURN, times=1)
    owners.drain(within_seconds=PATIENCE_SECONDS)
    assert rule.fired == 1
    assert released(taken)
    page = journal.page(taken.turn.key, 0)
    ids = [frame.id for chunk in page.chunks for frame in sse.decode(chunk.frames)]
    assert ids == list(range(1, writer._feed.last + 1))


def test_a_turn_that_was_stopped_meanwhile_stays_stopped(storage: None, create: Create) -> None:
    """The release is an append, and the cancel has its position (J2)."""
    assert storage is None
    taken = create()
    owners = owning(taken)
    assert cancel.cancel(taken.turn.owner, taken.turn.turn_id) == record.CANCELLED
    owners.drain(within_seconds=PATIENCE_SECONDS)
    turn = load(taken)
    assert turn.status == record.CANCELLED
    assert turn.holder.seconds > 0


def test_a_turn_that_ends_meanwhile_has_one_end(storage: None, create: Create) -> None:
    """Whichever is first: it is done, or another container will do it."""
    assert storage is None
    taken = create()

    def run(turn: Turn) -> None:
        turn.token("all")

    owners = Owners(lambda: Agent(run), settings())
    owners.own(taken)
    owners.drain(within_seconds=PATIENCE_SECONDS)
    turn = load(taken)
    tail = journal.tail(taken.turn.key)
    assert (turn.status == record.DONE) != (turn.holder.seconds == 0)
    assert (tail is not None and tail.terminal) == (turn.status == record.DONE)


def test_storage_out_of_reach_holds_nobody_longer_than_the_time_given(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """Then the lease lapses as that of a crash."""
    taken = create(lease_seconds=LONGEST_LEASE)
    owners = owning(taken)
    faulty_storage.inject("Commit", Answer("UNAVAILABLE"))
    owners.drain(within_seconds=1)
    assert not taken.lease.lost
    assert "release" in {thread.name for thread in threading.enumerate()}, "it is still tried"
    assert owners.must_leave(taken.turn.key)
    assert not released(taken)
    taken.lease.lose("the test is over")


def test_an_agent_that_wants_the_next_tool_does_not_keep_the_lease_from_being_released(
    storage: None, create: Create
) -> None:
    """The tool that ran has its outcome, the next one is not called; the release comes first."""
    assert storage is None
    taken = create()
    go, called = threading.Event(), threading.Event()
    made: list[str] = []

    @tool()
    def runs(_call: Call) -> None:
        called.set()
        go.wait()

    @tool()
    def is_next(_call: Call) -> None:
        made.append("the next one")

    def run(turn: Turn) -> None:
        turn.token("hello")
        turn.call(runs)
        turn.call(is_next)

    owners = owning(taken, run)
    assert called.wait(PATIENCE_SECONDS)
    owner = owners._owners[taken.turn.key]
    assert owner.writer is not None
    owner.writer.leave(within_seconds=0)
    go.set()
    owner.ended.wait(1)  # it does not: it would take the writing end with it
    owner.release()
    assert released(taken)
    assert owner.ended.wait(PATIENCE_SECONDS)
    assert made == []


def test_a_turn_that_was_created_while_the_container_began_to_end_is_released(
    storage: None, create: Create
) -> None:
    """Nobody runs it here, and nobody has to wait for its lease."""
    assert storage is None
    taken = create()
    scheduled: list[str] = []
    owners = Owners(lambda: Agent(talk), settings(), schedule=scheduled.append)
    owners.drain(within_seconds=PATIENCE_SECONDS)
    with pytest.raises(Draining):
        owners.own(taken)
    assert released(taken)
    assert scheduled == [taken.turn.key]
    again = takeover.take_over(wait_until_lapsed(taken), settings=settings())
    assert again is not None
    assert again.whole
