"""Deletion: all is gone, and stays gone (P1, P2), from the session, too (P3), bit by bit (P4)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions import firestore
from functions.errors import (
    Gone,
    LeaseLost,
    SessionBusy,
    StorageUnavailable,
    UnknownSession,
    UnknownTurn,
)
from functions.turns import (
    admission,
    cancel,
    creation,
    decide,
    deletion,
    journal,
    quota,
    record,
    sessions,
    steps,
)
from functions.turns.deletion import Deleted
from functions.turns.journal import Boundary, Chunk, Page
from functions.turns.lease import Lease
from functions.turns.owners import Owners
from functions.turns.program import Agent, Turn
from functions.turns.record import Request
from functions.turns.stream import Stream
from functions.turns.takeover import Taken
from functions.turns.tools import Call, tool
from functions.wire import sse
from tests.support.firestore_proxy import (
    Answer,
    DropAnswer,
    Fault,
    FirestoreProxy,
    Hold,
    touches,
)
from tests.support.lapse import lapse
from tests.support.leftover import stay
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import settings
from tests.turns.test_sessions import Chat, exchange, say

pytestmark = pytest.mark.emulator

SECRET = "what nobody may find"


@pytest.fixture
def chat(request: pytest.FixtureRequest) -> Chat:
    """A session of a new user."""
    request.getfixturevalue("storage")
    return Chat()


def stored(key: str) -> list[dict[str, Any]]:
    """Every document of a turn."""
    turn = record.reference(key)
    found = [turn.get(), *steps.collection(key).stream(), *journal.events(key).stream()]
    return [snapshot.to_dict() or {} for snapshot in found]


def require_gone(chat: Chat, turn_id: str) -> None:
    """Assert that everybody is told so, and that nothing of the turn's content is stored."""
    owners, given = Owners(lambda: Agent(say("again")), settings()), settings()
    for prompt in (SECRET, "another"):
        with pytest.raises(Gone):
            admission.start(
                chat.owner, turn_id, Request(prompt, None), 0, owners=owners, settings=given
            )
    for cursor in (0, 1):
        with pytest.raises(Gone):
            admission.resume(chat.owner, turn_id, cursor, owners=owners, settings=given)
    with pytest.raises(Gone):
        cancel.cancel(chat.owner, turn_id)
    with pytest.raises(Gone):
        decide.decide(chat.owner, turn_id, 1, "approve", 0, owners=owners, settings=given)
    key = record.turn_key(chat.owner, turn_id)
    assert SECRET not in repr(stored(key))
    assert chat.owner not in repr(stored(key))
    assert list(steps.collection(key).stream()) == []
    assert all(not (chunk.to_dict() or {})["frames"] for chunk in journal.events(key).stream())


@tool(approval_seconds=60)
def ask(_call: Call, *, what: str) -> str:
    """Needs a person."""
    return what


def model(turn: Turn) -> None:
    """Say it, with a step."""
    turn.model("m", {"prompt": SECRET}, lambda emit: emit(SECRET))
    turn.token(SECRET)


def run_long(turn: Turn) -> None:
    """Say it, and go on saying it."""
    model(turn)
    for _ in range(1000):
        turn.token(SECRET)
        time.sleep(0.1)


def wait_for_a_person(turn: Turn) -> None:
    """Say it, and wait."""
    model(turn)
    turn.call(ask, what=SECRET)


def waiting_for(go: threading.Event) -> Callable[[Turn], None]:
    """An agent that ends when it may."""

    def run(_turn: Turn) -> None:
        go.wait()

    return run


def fail(turn: Turn) -> None:
    """Say it, and fail."""
    model(turn)
    raise RuntimeError


@pytest.mark.parametrize("run", [model, run_long, wait_for_a_person, fail])
def test_nothing_is_left_of_a_deleted_turn(chat: Chat, run: Callable[[Turn], None]) -> None:
    """Whether it is finished, runs, waits or failed; its session is free."""
    turn_id = chat.start(run, SECRET)
    key = record.turn_key(chat.owner, turn_id)
    if run is run_long:
        wait_until(lambda: (tail := journal.tail(key)) is not None and tail.index > 2)
    else:
        wait_until(lambda: chat.turn(turn_id).status != record.RUNNING)
    assert SECRET in repr(stored(key))
    assert deletion.delete_turn(chat.owner, turn_id) == Deleted(1, 0, more=False)
    require_gone(chat, turn_id)
    assert (chat.session().claim, chat.session().entries) == (None, ())
    chat.run(say("x"))
    assert deletion.delete_turn(chat.owner, turn_id) == Deleted(1, 0, more=False)
    require_gone(chat, turn_id)


def test_an_owner_of_a_deleted_turn_stops_and_cannot_add_to_it(chat: Chat) -> None:
    """Its lease is lost with its next append or renewal."""
    stopped = threading.Event()

    def run(turn: Turn) -> None:
        try:
            run_long(turn)
        except LeaseLost:
            stopped.set()
            raise

    turn_id = chat.start(run, SECRET)
    key = record.turn_key(chat.owner, turn_id)
    wait_until(lambda: (tail := journal.tail(key)) is not None and tail.index > 2)
    deletion.delete_turn(chat.owner, turn_id)
    assert stopped.wait(PATIENCE_SECONDS)
    require_gone(chat, turn_id)


def late(taken: Taken, index: int, *, ends: bool) -> None:
    """What a frozen owner still sends when it thaws: text, perhaps with the turn's end.

    Its lease is as it was when it checked it, just before it froze.
    """
    lease = Lease(taken.lease.holder, sent_at=time.monotonic())
    frames = b'id: 1\nevent: token\ndata: "x"\n\n'
    chunk = Chunk(index, lease.holder.epoch, lease.holder.nonce, 0, 1, 1, 1, Boundary(), frames)

    def also(batch: Any) -> None:
        if ends:
            batch.update(record.reference(taken.turn.key), {"status": record.DONE})

    journal.append(taken.turn.key, chunk, lease, taken.turn.expire_at, also=also)


@pytest.mark.parametrize("ends", [False, True])
def test_no_owner_of_an_earlier_epoch_can_add_to_a_deleted_turn(chat: Chat, *, ends: bool) -> None:
    """The places of the journal stay taken, all of them: the second owner's, too (P2)."""
    frozen = creation.create(
        chat.owner, str(uuid.uuid4()), Request(SECRET, None), agent_version="1", settings=settings()
    )
    assert frozen is not None
    turn_id, key = frozen.turn.turn_id, frozen.turn.key
    Owners(lambda: Agent(model), chat.settings).take_over(lapse(key))
    wait_until(lambda: chat.turn(turn_id).finished)
    places = len(list(journal.events(key).stream()))
    assert places > 1
    deletion.delete_turn(chat.owner, turn_id)
    for index in range(places):
        with pytest.raises(LeaseLost):
            late(frozen, index, ends=ends)
    require_gone(chat, turn_id)
    assert len(list(journal.events(key).stream())) == places


def test_a_deleted_turn_leaves_the_history_that_later_turns_see(chat: Chat) -> None:
    """And no other turn does."""
    chat.run(say("one"), "1")
    second = chat.run(say("two"), "2")
    chat.run(say("three"), "3")
    deletion.delete_turn(chat.owner, second)
    assert [left for _, left in chat.left()] == [exchange("1", "one"), exchange("3", "three")]
    assert chat.session().turns == 3


def test_a_turn_deleted_while_a_later_one_runs_does_not_come_back(chat: Chat) -> None:
    """The later one's end writes its own entry alone."""
    first = chat.run(say("one"), "1")
    go = threading.Event()
    second = chat.start(waiting_for(go), "2")
    deletion.delete_turn(chat.owner, first)
    go.set()
    wait_until(lambda: chat.turn(second).finished)
    assert [left for _, left in chat.left()] == [exchange("2", "")]


def test_a_cancel_that_races_with_a_deletion_does_not_bring_the_turn_back(chat: Chat) -> None:
    """Whichever comes first."""
    for _ in range(5):
        turn_id = chat.start(run_long, SECRET)
        line = threading.Barrier(3)

        def at_once(call: Callable[[], object], line: threading.Barrier = line) -> None:
            line.wait()
            with suppress(Gone, StorageUnavailable):
                call()

        calls = [
            lambda turn_id=turn_id: cancel.cancel(chat.owner, turn_id),
            lambda turn_id=turn_id: deletion.delete_turn(chat.owner, turn_id),
            lambda turn_id=turn_id: deletion.delete_turn(chat.owner, turn_id),
        ]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(at_once, calls))
        require_gone(chat, turn_id)


def test_a_turn_that_is_not_there_cannot_be_deleted(chat: Chat) -> None:
    """Nor can another owner's."""
    turn_id = chat.run(say("mine"))
    with pytest.raises(UnknownTurn):
        deletion.delete_turn(f"uid:{uuid.uuid4()}", turn_id)
    assert chat.left()[0][0] == turn_id


def test_an_expired_turn_is_deleted_though_its_owner_still_runs(chat: Chat) -> None:
    """It is fenced all the same."""
    turn_id = chat.start(run_long, SECRET)
    record.reference(record.turn_key(chat.owner, turn_id)).update(
        {firestore.EXPIRE_AT: datetime.now(UTC)}
    )
    deletion.delete_turn(chat.owner, turn_id)
    require_gone(chat, turn_id)


def test_a_deletion_that_breaks_off_goes_on_with_the_next_call(chat: Chat) -> None:
    """At whichever point: the owner's turns are found until nothing is left of them."""
    turn_id = chat.run(model, SECRET)
    key = record.turn_key(chat.owner, turn_id)
    assert deletion.delete_turn(chat.owner, turn_id, seconds=0).more
    for part in (deletion._leave_session, deletion._bury, deletion._delete_steps):
        writes = part(key)
        assert writes is not None
        assert (
            firestore.commit(writes, timeout_seconds=PATIENCE_SECONDS).kind
            is firestore.Kind.APPLIED
        )
        assert deletion.delete_owner(chat.owner, seconds=0).more
    assert deletion.delete_owner(chat.owner) == Deleted(1, 1, more=False)
    require_gone(chat, turn_id)


@pytest.mark.parametrize(
    "faults",
    [(Answer("ABORTED"),), (Answer("UNAVAILABLE"),), (DropAnswer("UNAVAILABLE"),)],
    ids=str,
)
def test_a_deletion_gets_through_bad_answers(
    faulty_storage: FirestoreProxy, faults: tuple[Fault, ...]
) -> None:
    """Every other commit goes wrong."""
    chat = Chat()
    turn_id = chat.run(model, SECRET)
    for skip in range(8):
        faulty_storage.inject("Commit", *faults, when=touches(r"agent_.*"), times=1, after=skip)
    assert deletion.delete_owner(chat.owner) == Deleted(1, 1, more=False)
    require_gone(chat, turn_id)


def test_a_long_journal_is_deleted_in_several_commits(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More chunks and steps than one commit takes."""
    monkeypatch.setattr(deletion, "BATCH_DOCUMENTS", 30)

    def run(turn: Turn) -> None:
        for _ in range(50):
            turn.model("m", None, lambda emit: emit(SECRET))

    turn_id = chat.run(run, SECRET)
    assert deletion.delete_turn(chat.owner, turn_id) == Deleted(1, 0, more=False)
    require_gone(chat, turn_id)


def test_a_session_is_deleted_and_its_running_turn_stopped(chat: Chat) -> None:
    """Its id then begins a new session; its turns can still be read."""
    first = chat.run(say("one"))
    second = chat.start(lambda _turn: stay())
    with pytest.raises(SessionBusy):
        chat.start(say("x"))
    assert deletion.delete_session(chat.owner, chat.id) == Deleted(0, 1, more=False)
    with pytest.raises(UnknownSession):
        deletion.delete_session(chat.owner, chat.id)
    assert chat.turn(second).status == record.CANCELLED
    assert chat.turn(first).status == record.DONE
    third = chat.run(say("three"))
    assert [turn_id for turn_id, _ in chat.left()] == [third]


def test_everything_of_an_owner_is_deleted_and_nothing_of_another(chat: Chat) -> None:
    """Turns that run, wait or are finished, in sessions or without; sessions; what is counted."""
    other, go = Chat(), threading.Event()
    theirs = [other.run(say("kept")), other.start(waiting_for(go))]
    mine = [chat.run(model, SECRET), chat.start(run_long, SECRET)]
    chat.id = "another"
    mine.append(chat.start(wait_for_a_person, SECRET))
    chat.id = None  # type: ignore[assignment]  # no session
    mine += [chat.run(model, SECRET) for _ in range(3)]
    deleted = deletion.delete_owner(chat.owner)
    assert deleted == Deleted(turns=6, sessions=2, more=False)
    for turn_id in mine:
        require_gone(chat, turn_id)
    assert sessions.page(chat.owner) == []
    assert deletion.delete_owner(chat.owner) == Deleted(0, 0, more=False)
    go.set()
    wait_until(lambda: other.turn(theirs[1]).finished)
    assert [turn_id for turn_id, _ in other.left()] == theirs


def test_deleting_all_does_not_reset_the_minute(chat: Chat) -> None:
    """The starts still count, but no longer say whose they are; then they are deleted, too."""
    turn_id = chat.run(say("x"))
    deletion.delete_owner(chat.owner)
    document = quota.reference(chat.owner)
    fields = document.get().to_dict()
    assert fields is not None
    assert (fields["owner"], fields["running"]) == ("", [])
    assert list(fields["starts"]) == [record.turn_key(chat.owner, turn_id)]
    assert fields[firestore.EXPIRE_AT] < datetime.now(UTC) + timedelta(minutes=2)
    old = datetime.now(UTC) - timedelta(seconds=61)
    document.update({"starts": {"k": old}, "owner": chat.owner})
    deletion.delete_owner(chat.owner)
    assert not document.get().exists


def test_a_follower_of_a_deleted_turn_ends_without_reading_what_is_left(
    faulty_storage: FirestoreProxy,
) -> None:
    """It does not walk through the emptied places of the journal, one by one."""
    chat = Chat()

    def run(turn: Turn) -> None:
        for number in range(30):
            turn.model("m", number, lambda emit: emit("x"))

    turn_id = chat.run(run)
    key = record.turn_key(chat.owner, turn_id)
    tail = journal.tail(key)
    assert tail is not None
    assert tail.index >= 30
    deletion.delete_turn(chat.owner, turn_id)
    before = len(faulty_storage.calls)
    owners = Owners(lambda: Agent(run), settings())
    stream = Stream(key, tail.last - 1, Page([], more=False), owners, settings())
    assert b"".join(stream).replace(sse.PING, b"") == b""
    assert len(faulty_storage.calls) - before < tail.index


def test_the_end_of_an_expired_turn_takes_the_session_from_nobody_else(
    faulty_storage: FirestoreProxy,
) -> None:
    """Another turn claims it while the deletion is about to release it (H1)."""
    chat = Chat()
    old = chat.start(wait_for_a_person)
    wait_until(lambda: chat.turn(old).status == record.WAITING)
    key = record.turn_key(chat.owner, old)
    record.reference(key).update({firestore.EXPIRE_AT: datetime.now(UTC)})
    go = threading.Event()
    end = faulty_storage.inject("Commit", Hold(go), when=touches(f"agent_turns/{key}$"), times=1)
    deleting = threading.Thread(target=deletion.delete_turn, args=(chat.owner, old))
    deleting.start()
    end.wait()
    new = chat.start(lambda _turn: stay())
    go.set()
    deleting.join()
    claim = chat.session().claim
    assert claim is not None
    assert claim.turn_id == new
