"""Taking the lease (T1): one winner, whatever the answers; a live lease is never taken."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from functions import firestore
from functions.errors import LeaseLost, StorageUnavailable
from functions.turns import cancel, journal, record, takeover
from functions.turns.lease import MARGIN_SECONDS, Lease, Renewal
from functions.turns.record import Record, Request
from functions.turns.takeover import Taken
from functions.wire import sse
from functions.wire.events import Done
from tests.support.firestore_proxy import Answer, DropAnswer, FirestoreProxy, Hang, Hold, touches
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import Create, lapsed, load, renew, settings, shortened
from tests.turns.test_append import append, chunk, stored

pytestmark = pytest.mark.emulator

EXPIRE_AT = datetime(2100, 1, 1, tzinfo=UTC)
TURN = touches(r"agent_turns/[^/]+$")
EVENTS = touches(r"agent_turns/[^/]+/agent_turn_events/\d+$")


@pytest.mark.usefixtures("storage")
def test_a_lease_lapses_after_its_time_and_a_margin(create: Create) -> None:
    """By the server's clock, and not before."""
    taken = shortened(create(), 1)
    reads: list[Record] = []

    def found_lapsed() -> bool:
        reads.append(load(taken))
        return reads[-1].lapsed

    wait_until(found_lapsed)
    ages = [(turn.read_at - turn.updated_at).total_seconds() for turn in reads]
    assert ages[-1] > 1 + MARGIN_SECONDS
    assert all(age <= 1 + MARGIN_SECONDS for age in ages[:-1])


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("count", [2, 10])
def test_of_takers_in_one_instant_one_wins(create: Create, count: int) -> None:
    """The others come away empty-handed; there is one new epoch."""
    taken = create()
    append(taken, chunk(taken, 0))
    turn = lapsed(taken)
    barrier = threading.Barrier(count)
    outcomes: list[Taken | None] = []

    def attempt() -> None:
        barrier.wait()
        outcomes.append(takeover.take_over(turn, settings=settings()))

    threads = [threading.Thread(target=attempt) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if outcome is not None]
    assert (len(outcomes), len(winners)) == (count, 1)
    assert winners[0].turn.holder.epoch == load(taken).holder.epoch == 2
    assert [one.epoch for one in stored(taken)] == [1, 2]


@pytest.mark.usefixtures("storage")
def test_the_epoch_chunk_rewinds_and_numbers_above_everything_shown(create: Create) -> None:
    """It begins with the rewind, at last committed + W + 1 (N3)."""
    taken = create()
    append(taken, chunk(taken, 0), chunk(taken, 1))
    won = takeover.take_over(lapsed(taken), settings=settings())
    assert won is not None
    assert won.begins is not None
    assert (won.begins.index, won.begins.after, won.begins.first) == (2, 2, 10_003)
    frame = next(sse.decode(won.begins.frames))
    assert (frame.id, frame.type, frame.data) == (10_003, "rewind", {"to": 0, "length": 0})


@pytest.mark.usefixtures("storage")
def test_the_old_owner_fails_at_its_next_append(create: Create) -> None:
    """From the takeover's commit on, though its own clock gave it more time."""
    taken = create()
    zombie = Lease(taken.lease.holder, sent_at=time.monotonic() + 60)
    append(taken, chunk(taken, 0))
    assert takeover.take_over(lapsed(taken), settings=settings()) is not None
    with pytest.raises(LeaseLost):
        journal.append(taken.turn.key, chunk(taken, 1), zombie, taken.turn.expire_at)
    assert zombie.lost


@pytest.mark.usefixtures("storage")
def test_a_stop_that_crosses_a_takeover_is_of_a_newer_epoch(create: Create) -> None:
    """It read the turn before it was taken over, and the journal after it: its owner is told that
    the turn is another's, not that an invariant is broken.
    """
    taken = create()
    before = lapsed(taken)
    won = takeover.take_over(before, settings=settings())
    assert won is not None
    assert cancel._try(before, journal.tail(before.key))
    assert load(taken).holder.epoch == 3
    late = chunk(won, 1, first=10_003, last=10_003)
    with pytest.raises(LeaseLost):
        journal.append(before.key, late, won.lease, before.expire_at)


@pytest.mark.usefixtures("storage")
def test_a_renewal_between_reading_and_taking_saves_the_lease(create: Create) -> None:
    """The precondition: the turn's document is unchanged since it was read as lapsed."""
    taken = create()
    turn = lapsed(taken)
    record.reference(turn.key).update({"lease.beat": 7})
    assert takeover.take_over(turn, settings=settings()) is None
    assert load(taken).holder.epoch == 1
    assert stored(taken) == []


def test_an_append_between_reading_and_taking_saves_the_turn(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """The tail moved after the taker found it: its create fails."""
    taken = create()
    turn = lapsed(taken)
    go = threading.Event()
    rule = faulty_storage.inject("Commit", Hold(go), when=TURN)
    outcomes: list[Taken | None] = []
    taker = threading.Thread(
        target=lambda: outcomes.append(takeover.take_over(turn, settings=settings()))
    )
    taker.start()
    rule.wait(1)
    awake = replace(taken, lease=Lease(taken.lease.holder, sent_at=time.monotonic()))
    append(awake, chunk(taken, 0))
    go.set()
    taker.join()
    assert outcomes == [None]
    assert [one.epoch for one in stored(taken)] == [1]


@pytest.mark.parametrize("status", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "UNKNOWN"])
def test_a_takeover_whose_answer_is_lost_is_recognised(
    faulty_storage: FirestoreProxy, create: Create, status: str
) -> None:
    """Own nonce is success: no owner follows itself for a lease."""
    taken = create()
    turn = lapsed(taken)
    faulty_storage.inject("Commit", DropAnswer(status), when=EVENTS, times=1)
    won = takeover.take_over(turn, settings=settings())
    assert won is not None
    assert [one.epoch for one in stored(taken)] == [2]
    renew(won, 1)
    assert load(won).holder.beat == 1
    assert not won.lease.lost


@pytest.mark.parametrize("status", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED"])
def test_a_creation_whose_answer_is_lost_is_recognised(
    faulty_storage: FirestoreProxy, status: str
) -> None:
    """The creator owns the turn it created; the same start again does not."""
    faulty_storage.inject("Commit", DropAnswer(status), when=TURN, times=1)
    owner, turn_id = str(uuid.uuid4()), str(uuid.uuid4())

    def create() -> Taken | None:
        request = Request("hello", None)
        return takeover.create(owner, turn_id, request, agent_version="1", settings=settings())

    taken = create()
    assert taken is not None
    assert load(taken).holder.nonce == taken.lease.holder.nonce
    assert create() is None


def test_a_creation_that_storage_never_answers_is_unavailable(
    faulty_storage: FirestoreProxy,
) -> None:
    """Not asked for ever; the caller says 503."""
    faulty_storage.inject("Commit", Answer("UNAVAILABLE"), when=TURN)
    faulty_storage.inject("BatchGetDocuments", Answer("UNAVAILABLE"))
    given, asked = settings(lease_seconds=1), Request("x", None)
    with pytest.raises(StorageUnavailable):
        takeover.create("o", str(uuid.uuid4()), asked, agent_version="1", settings=given)


@pytest.mark.usefixtures("storage", "patient")
def test_a_terminal_tail_under_a_running_status_is_repaired(create: Create) -> None:
    """The status is put right; nothing is appended."""
    taken = create()
    append(taken, chunk(taken, 0, frames=sse.encode(1, Done("stop"))))  # type: ignore[arg-type]
    assert takeover.take_over(lapsed(taken), settings=settings()) is None
    assert load(taken).status == record.DONE
    assert len(stored(taken)) == 1


@pytest.mark.usefixtures("storage")
def test_a_turn_whose_first_chunk_is_gone_is_never_run_again(create: Create) -> None:
    """TTL deletes in any order; running it again would repeat its effects."""
    taken = create()
    append(taken, chunk(taken, 0), chunk(taken, 1))
    journal.document(taken.turn.key, 0).delete()
    won = takeover.take_over(lapsed(taken), settings=settings())
    assert won is not None
    assert not won.whole


def test_a_renewal_that_hangs_loses_the_lease_in_time(
    faulty_storage: FirestoreProxy, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner stops before anybody else may take the lease (L2), and says so to its work."""
    monkeypatch.setattr("functions.turns.lease.MARGIN_SECONDS", PATIENCE_SECONDS)
    taken = shortened(create(), 3)
    told = threading.Event()
    taken.lease.on_lost = told.set
    rule = faulty_storage.inject("Commit", Hang(), when=TURN)
    renewal = Renewal(
        record.reference(taken.turn.key), taken.lease, taken.turn.updated_at, EXPIRE_AT
    )
    renewal.start()
    assert told.wait(PATIENCE_SECONDS)
    faulty_storage.remove(rule)
    assert not load(taken).lapsed
    with pytest.raises(LeaseLost):
        append(taken, chunk(taken, 0))


@pytest.mark.parametrize("status", ["ABORTED", "UNAVAILABLE"])
@pytest.mark.parametrize("fault", [Answer, DropAnswer])
def test_renewals_survive_answers_that_are_lost_or_refused(
    faulty_storage: FirestoreProxy,
    create: Create,
    fault: Callable[[str], Answer | DropAnswer],
    status: str,
) -> None:
    """Every second renewal goes wrong for two leases, and the lease is kept: each of the others
    puts its deadline off, and one that was not applied is followed by the next one sooner.
    """
    taken = create()
    for skip in (0, 1, 2):
        faulty_storage.inject("Commit", fault(status), when=TURN, times=1, after=skip)
    kept: list[float] = []
    confirm = taken.lease.confirm

    def note(*, sent_at: float) -> None:
        kept.append(sent_at)
        confirm(sent_at=sent_at)

    taken.lease.confirm = note  # type: ignore[method-assign]
    waited = renew(taken, 6)
    period = taken.lease.holder.seconds / 3
    if fault is DropAnswer:  # applied: that is read back
        assert (len(kept), waited) == (6, [period] * 7)
    else:
        assert len(kept) == 3
        assert waited == [period, *[period / 5, period] * 3]
    assert not taken.lease.lost
    assert load(taken).holder.beat == 6


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("change", ["another epoch", "deleted"])
def test_a_renewal_finds_out_that_the_turn_is_not_ours_any_more(
    create: Create, change: str
) -> None:
    """A failed precondition means: read again."""
    taken = create()
    reference = record.reference(taken.turn.key)
    if change == "deleted":
        reference.delete()
    else:
        reference.update({"lease": taken.lease.holder.next(1).to_fields()})
    assert renew(taken, 2) == [taken.lease.holder.seconds / 3], "the first one finds out"
    assert taken.lease.lost


@pytest.mark.usefixtures("storage")
def test_the_turn_document_is_written_once_for_each_renewal(create: Create) -> None:
    """Firestore sustains about one write a second on a document; a lease of 9 s takes a third."""
    taken = create()
    assert renew(taken, 3) == [taken.lease.holder.seconds / 3] * 4
    assert load(taken).holder.beat == 3


def test_unknown_errors_are_unclear() -> None:
    """An answer nobody thought of is read back, never taken for a yes or a no."""
    assert firestore.classify(RuntimeError("?")) is firestore.Kind.UNCLEAR
