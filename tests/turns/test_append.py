"""The fenced append (J2, J3): every answer of Firestore's means applied, not applied or unclear."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from functions.errors import InvariantBroken, LeaseLost
from functions.turns import journal
from functions.turns.journal import AppendRefused, Boundary, Chunk
from functions.turns.lease import Lease
from functions.turns.takeover import Taken
from functions.wire import sse
from functions.wire.events import Token
from tests.support.firestore_proxy import (
    Answer,
    DelayAnswer,
    DropAnswer,
    FirestoreProxy,
    Hang,
    Hold,
    touches,
)
from tests.turns.conftest import LONGEST_LEASE, Create, shortened

pytestmark = pytest.mark.emulator

EVENTS = touches(r"agent_turns/[^/]+/agent_turn_events/\d+$")


def chunk(taken: Taken, index: int, text: str = "hi", **changed: int) -> Chunk:
    """A chunk of one token, id `index + 1`."""
    event_id = index + 1
    made = Chunk(
        index=index,
        epoch=taken.lease.holder.epoch,
        nonce=taken.lease.holder.nonce,
        after=index,
        first=event_id,
        last=event_id,
        length=len(text),
        boundary=Boundary(),
        frames=sse.encode(event_id, Token(text)),
    )
    return replace(made, **changed)  # type: ignore[arg-type]  # whatever field a test changes


def append(taken: Taken, *chunks: Chunk) -> None:
    """Append under the lease of `taken`."""
    for one in chunks:
        journal.append(taken.turn.key, one, taken.lease, taken.turn.expire_at)


def stored(taken: Taken) -> list[Chunk]:
    """The whole journal."""
    documents = journal.events(taken.turn.key).order_by("__name__").stream()
    return [Chunk.from_fields(document.to_dict() or {}) for document in documents]


@pytest.mark.usefixtures("storage")
def test_chunks_come_back_as_they_were_appended(create: Create) -> None:
    """In order, byte for byte."""
    taken = create()
    chunks = [chunk(taken, 0), chunk(taken, 1, "那🌍é\u2028"), chunk(taken, 2)]
    append(taken, *chunks)
    assert stored(taken) == chunks
    assert journal.tail(taken.turn.key) == chunks[-1]


@pytest.mark.parametrize("status", ["ABORTED", "RESOURCE_EXHAUSTED"])
def test_a_commit_that_was_not_applied_is_sent_again(
    faulty_storage: FirestoreProxy, create: Create, status: str
) -> None:
    """The same bytes, until they are in."""
    taken = create()
    faulty_storage.inject("Commit", Answer(status), when=EVENTS, times=3)
    append(taken, chunk(taken, 0), chunk(taken, 1))
    assert stored(taken) == [chunk(taken, 0), chunk(taken, 1)]


@pytest.mark.parametrize(
    "status", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED", "ABORTED"]
)
def test_a_commit_that_was_applied_but_not_answered_is_read_back(
    faulty_storage: FirestoreProxy, create: Create, status: str
) -> None:
    """No duplicate, no gap, no false loss of the lease."""
    taken = create()
    faulty_storage.inject("Commit", DropAnswer(status), when=EVENTS, times=2)
    append(taken, chunk(taken, 0), chunk(taken, 1), chunk(taken, 2))
    assert [one.index for one in stored(taken)] == [0, 1, 2]
    assert not taken.lease.lost


@pytest.mark.parametrize("status", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"])
def test_a_commit_that_was_lost_on_the_way_is_sent_again(
    faulty_storage: FirestoreProxy, create: Create, status: str
) -> None:
    """Unclear, read back, not there: the same bytes again."""
    taken = create()
    faulty_storage.inject("Commit", Answer(status), when=EVENTS, times=2)
    append(taken, chunk(taken, 0))
    assert stored(taken) == [chunk(taken, 0)]


def test_a_commit_that_is_applied_late_counts_once(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """The answer is given up, the read finds nothing, and then the commit arrives after all, before
    the one that was sent again.
    """
    taken = create(lease_seconds=LONGEST_LEASE)
    first, again = threading.Event(), threading.Event()
    late = faulty_storage.inject("Commit", Hold(first), when=EVENTS, times=1)
    anew = faulty_storage.inject("Commit", Hold(again), when=EVENTS)
    appending = threading.Thread(target=append, args=(taken, chunk(taken, 0), chunk(taken, 1)))
    appending.start()
    anew.wait()
    first.set()
    (applied,) = faulty_storage.wait_for(
        "Commit", lambda call: call.rule is late and call.upstream is not None
    )
    assert applied.upstream == "OK"
    again.set()
    appending.join()
    assert [one.index for one in stored(taken)] == [0, 1]
    assert not taken.lease.lost


@pytest.mark.usefixtures("patient")
def test_a_slow_answer_is_waited_for(faulty_storage: FirestoreProxy, create: Create) -> None:
    """Up to a third of the lease, without a second commit, nor a look."""
    taken = create(lease_seconds=LONGEST_LEASE)
    faulty_storage.inject("Commit", DelayAnswer(1.0), when=EVENTS, times=1)
    append(taken, chunk(taken, 0))
    assert [call.method for call in faulty_storage.calls if EVENTS(call.request)] == ["Commit"]


def test_an_append_gives_up_at_the_end_of_the_lease(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """Nothing is answered: it stops by itself, in time, and the loss is for good (L3)."""
    taken = shortened(create(), 1)
    faulty_storage.inject("Commit", Hang(), when=EVENTS)
    with pytest.raises(LeaseLost):
        append(taken, chunk(taken, 0))
    assert taken.lease.lost


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("status", ["INVALID_ARGUMENT", "PERMISSION_DENIED", "UNAUTHENTICATED"])
def test_a_refused_chunk_is_not_sent_again(
    faulty_storage: FirestoreProxy, create: Create, status: str
) -> None:
    """The same bytes would fail for ever."""
    taken = create()
    rule = faulty_storage.inject("Commit", Answer(status), when=EVENTS)
    with pytest.raises(AppendRefused):
        append(taken, chunk(taken, 0))
    assert rule.fired == 1
    assert stored(taken) == []


@pytest.mark.usefixtures("storage")
def test_the_position_of_a_newer_epoch_is_a_lost_lease(create: Create) -> None:
    """Whoever took over created that index first; the old owner writes nothing, ever (J2)."""
    taken = create()
    newer = chunk(taken, 0, epoch=2)
    append(taken, newer)
    with pytest.raises(LeaseLost):
        append(taken, chunk(taken, 0))
    assert taken.lease.lost
    with pytest.raises(LeaseLost):
        append(taken, chunk(taken, 1))
    assert stored(taken) == [newer]


@pytest.mark.usefixtures("storage")
def test_other_bytes_of_the_same_epoch_are_a_bug(create: Create) -> None:
    """Two writers in one epoch cannot be: it is said, not papered over."""
    taken = create()
    append(taken, chunk(taken, 0, "one"))
    with pytest.raises(InvariantBroken, match="J2"):
        append(taken, chunk(taken, 0, "two"))


@pytest.mark.usefixtures("storage")
def test_of_two_appends_at_one_index_one_wins(create: Create) -> None:
    """The other one learns it from the answer."""
    taken = create()
    rival = replace(taken, lease=Lease(taken.lease.holder, sent_at=time.monotonic()))
    barrier = threading.Barrier(2)
    outcomes: list[str] = []

    def attempt(who: Taken, epoch: int) -> None:
        barrier.wait()
        try:
            append(who, chunk(who, 0, epoch=epoch))
            outcomes.append(f"applied {epoch}")
        except LeaseLost:
            outcomes.append(f"lost {epoch}")
        except InvariantBroken:
            outcomes.append(f"older {epoch}")

    threads = [
        threading.Thread(target=attempt, args=(who, epoch))
        for who, epoch in ((taken, 1), (rival, 2))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) in (["applied 2", "lost 1"], ["applied 1", "older 2"])
    assert len(stored(taken)) == 1


@pytest.mark.usefixtures("storage")
def test_pages_are_bounded_and_complete(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay reads at most so many chunks or 1 MiB at a time, and misses none."""
    monkeypatch.setattr(journal, "PAGE_CHUNKS", 16)
    taken = create(lease_seconds=LONGEST_LEASE)
    size = 50
    append(taken, *(chunk(taken, index) for index in range(size)))
    cursor, pages = 0, []
    while True:
        page = journal.page(taken.turn.key, cursor)
        pages.append(len(page.chunks))
        if not page.more:
            break
        cursor = page.chunks[-1].last
    assert pages == [16, 16, 16, 2]
    big = "x" * 500_000
    append(taken, *(chunk(taken, size + n, big) for n in range(4)))
    page = journal.page(taken.turn.key, size)
    assert (len(page.chunks), page.more) == (3, True)
