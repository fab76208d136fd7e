"""Sessions: one turn at a time (H1), what it leaves (H2), what it sees (H3), and no more (H4)."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from functions import firestore
from functions.errors import AgentFailed, SessionBusy, SignInRequired
from functions.turns import (
    admission,
    cancel,
    creation,
    finish,
    history,
    journal,
    membership,
    record,
    sessions,
)
from functions.turns.budget import Budget
from functions.turns.history import SESSION_HISTORY_BYTES
from functions.turns.owners import Owners
from functions.turns.program import Agent, Turn
from functions.turns.record import Request
from functions.turns.sessions import Session
from functions.wire import sse
from tests.support.firestore_proxy import (
    Answer,
    DropAnswer,
    Fault,
    FirestoreProxy,
    Hold,
    paths,
    touches,
)
from tests.support.lapse import lapse
from tests.support.leftover import stay
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import LONGEST_LEASE, settings
from tests.turns.test_asking import again, attempts

pytestmark = pytest.mark.emulator

SESSION = touches(r"agent_sessions/[^/]+")
CHUNK = touches(r"agent_turns/[^/]+/agent_turn_events/\d+")


def ends(commit: Any) -> bool:
    """Whether it is the commit of the end of a turn of a session."""
    return SESSION(commit) and CHUNK(commit)


class Chat:
    """One user's session, whose turns this process runs with agents of one turn each."""

    def __init__(self) -> None:
        self.owner = f"uid:{uuid.uuid4()}"
        self.id = "chat"
        self.settings = settings(max_turns_per_minute=1000)

    def start(self, run: Callable[[Turn], None], prompt: str = "hello") -> str:
        """Start a turn; its id. Raises as `admission.start` does."""
        turn_id = str(uuid.uuid4())
        admission.start(
            self.owner,
            turn_id,
            Request(prompt, self.id),
            0,
            owners=Owners(lambda: Agent(run, budget=Budget(model_steps=1000)), self.settings),
            settings=self.settings,
        )
        return turn_id

    def run(self, run: Callable[[Turn], None], prompt: str = "hello") -> str:
        """Start a turn and wait for its end."""
        turn_id = self.start(run, prompt)
        wait_until(lambda: self.turn(turn_id).finished)
        return turn_id

    def turn(self, turn_id: str) -> record.Record:
        """The turn as it is stored."""
        found = record.load(record.turn_key(self.owner, turn_id))
        assert found is not None
        return found

    def session(self) -> Session:
        """The session as it is stored."""
        found = sessions.load(self.owner, self.id)
        assert found is not None
        return found

    def left(self) -> list[tuple[str, Any]]:
        """What each turn left, oldest first."""
        return [(one.turn_id, json.loads(one.messages)) for one in self.session().entries]


@pytest.fixture
def chat(request: pytest.FixtureRequest) -> Chat:
    """A session of a new user."""
    request.getfixturevalue("storage")
    return Chat()


def say(*words: str) -> Callable[[Turn], None]:
    """An agent that says this."""

    def run(turn: Turn) -> None:
        for word in words:
            turn.token(word)

    return run


def exchange(prompt: str, answer: str) -> list[dict[str, str]]:
    """What is remembered by default."""
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]


def fail(_turn: Turn) -> None:
    """An agent that fails."""
    raise RuntimeError


def test_a_turn_sees_what_the_turns_before_it_left(chat: Chat) -> None:
    """By default that is what was asked and answered; else what the agent remembers."""
    seen: list[list[Any]] = []

    def remember(turn: Turn) -> None:
        seen.append(turn.history)
        turn.remember([{"role": "user", "content": "forgotten"}])
        turn.remember([{"mine": [1, None]}, "two"])

    def look(turn: Turn) -> None:
        seen.append(turn.history)
        turn.history.clear()
        seen.append(turn.history)

    first = chat.run(say("he", "llo ", "\ud83d", "\ude00"), "hi")
    second = chat.run(remember)
    chat.run(look)
    assert seen[0] == exchange("hi", "hello \U0001f600")
    assert seen[1] == seen[2] == [*seen[0], {"mine": [1, None]}, "two"]
    assert [turn_id for turn_id, _ in chat.left()][:2] == [first, second]
    session = chat.session()
    assert (session.turns, session.claim) == (3, None)


@pytest.mark.usefixtures("storage")
def test_a_turn_without_a_session_has_no_history() -> None:
    """And may say what to remember all the same."""
    seen: list[Any] = []

    def run(turn: Turn) -> None:
        turn.remember([1])
        seen.append(turn.history)

    turn_id = str(uuid.uuid4())
    admission.start(
        "app:x", turn_id, Request("hello", None), 0,
        owners=Owners(lambda: Agent(run), settings()), settings=settings(),
    )  # fmt: skip
    wait_until(lambda: bool(seen))
    assert seen == [[]]


def test_a_session_needs_a_user(chat: Chat) -> None:
    """Who is not signed in is nobody to come back to."""
    chat.owner = "app:x:y"
    with pytest.raises(SignInRequired):
        chat.start(say("x"))


@pytest.mark.parametrize("bad", [{"not": "a list"}, "text", [float("nan")], [{1, 2}], ["\ud800"]])
def test_what_cannot_be_remembered_is_refused_at_once(chat: Chat, bad: Any) -> None:
    """The agent hears of it where it asks for it."""
    raised: list[BaseException] = []

    def run(turn: Turn) -> None:
        try:
            turn.remember(bad)
        except (TypeError, ValueError) as error:
            raised.append(error)

    chat.run(run, "p")
    assert len(raised) == 1
    assert chat.left()[0][1] == exchange("p", "")


def test_a_turn_that_fails_or_is_stopped_frees_the_session(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves nothing, unless it had said so before it failed."""

    def remember_and_fail(turn: Turn) -> None:
        turn.remember(["so far"])
        turn.token("x")
        fail(turn)

    with monkeypatch.context() as patch, pytest.raises(AgentFailed):
        patch.setattr(admission, "FIRST_EVENT_SECONDS", PATIENCE_SECONDS)
        chat.start(fail)
    chat.run(remember_and_fail)
    stopped = chat.start(lambda turn: turn.model("m", None, lambda _emit: stay()))
    with pytest.raises(SessionBusy):
        chat.start(say("x"))
    assert cancel.cancel(chat.owner, stopped) == record.CANCELLED
    assert chat.session().claim is None
    chat.run(say("b"), "a")
    assert [messages for _, messages in chat.left()] == [["so far"], exchange("a", "b")]


def test_another_turn_of_a_busy_session_is_told_which_turn_has_it(chat: Chat) -> None:
    """And the same turn again attaches."""
    turn_id = chat.start(lambda _turn: stay())
    with pytest.raises(SessionBusy) as raised:
        chat.start(say("x"))
    assert raised.value.more == {"turnId": turn_id}
    assert chat.session().turns == 1
    again = creation.create(
        chat.owner, turn_id, Request("hello", "chat"), agent_version="1", settings=settings()
    )
    assert again is None


@pytest.mark.parametrize("end", ["gone", "expired"])
def test_a_turn_that_is_no_more_holds_nobody_up(chat: Chat, end: str) -> None:
    """Deleted, or past its retention with nobody left who could end it."""
    taken = create(chat)
    with pytest.raises(SessionBusy):
        create(chat)
    reference = record.reference(taken.turn.key)
    if end == "gone":
        reference.delete()
    else:
        reference.update({firestore.EXPIRE_AT: datetime.now(UTC)})
        with pytest.raises(SessionBusy):  # its owner may still be about to end it
            create(chat)
        lapse(taken.turn.key)
    create(chat)
    assert chat.session().turns == 2


def create(chat: Chat) -> Any:
    """Create a turn that nobody runs."""
    taken = creation.create(
        chat.owner,
        str(uuid.uuid4()),
        Request("x", "chat"),
        agent_version="1",
        settings=settings(),
    )
    assert taken is not None
    return taken


def test_a_session_past_its_time_begins_anew(chat: Chat) -> None:
    """Deleted yet or not."""
    chat.run(say("old"))
    reference = sessions.reference(sessions.session_key(chat.owner, chat.id))
    reference.update({firestore.EXPIRE_AT: datetime.now(UTC)})
    new = chat.run(say("new"))
    assert [turn_id for turn_id, _ in chat.left()] == [new]
    assert chat.session().turns == 1


def take_over(chat: Chat, turn_id: str, run: Callable[[Turn], None]) -> sse.Frame:
    """Have another process's agent take over a turn that nobody runs; its terminal event."""
    turn = lapse(record.turn_key(chat.owner, turn_id))
    Owners(lambda: Agent(run), chat.settings).take_over(turn)
    wait_until(lambda: chat.turn(turn_id).finished)
    tail = journal.tail(chat.turn(turn_id).key)
    assert tail is not None
    return list(sse.decode(tail.frames))[-1]


def test_a_turn_sees_the_same_after_a_takeover_and_leaves_all_of_its_text(chat: Chat) -> None:
    """Also the text that dead owners told."""
    chat.run(say("one"), "1")
    taken = create(chat)
    Owners(lambda: Agent(half), chat.settings).own(taken)
    seen: list[Any] = []
    key = taken.turn.key
    wait_until(lambda: (tail := journal.tail(key)) is not None and tail.boundary.steps == 1)
    taken.lease.lose("for the test")

    def whole(turn: Turn) -> None:
        seen.append(turn.history)
        turn.model("m", None, lambda emit: emit("never"))
        turn.token(" and the rest")

    assert take_over(chat, taken.turn.turn_id, whole).type == "done"
    assert seen == [exchange("1", "one")]
    assert chat.left()[1] == (taken.turn.turn_id, exchange("x", "the first half and the rest"))


def test_of_a_long_text_of_dead_owners_no_more_is_read_than_is_kept(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be put together piece by piece: a minute's work for an hour's text."""

    def long(turn: Turn) -> None:
        for word in ("é🌍 ", *(f"{n} " for n in range(100))):
            turn.token(word)
        turn.model("m", None, attempts(again(), None))

    turn = chat.turn(chat.run(long))
    tail = journal.tail(turn.key)
    assert tail is not None
    text = "é🌍 " + "".join(f"{n} " for n in range(100)) + "try 2, "
    assert membership.told_before(turn, tail.last) == text
    monkeypatch.setattr(history, "ANSWER_CHARS", 20)
    assert membership.told_before(turn, tail.last) == text[:21]


def test_an_abandoned_turn_frees_its_session_with_nobody_connected(chat: Chat) -> None:
    """A task finishes it: what it says is remembered."""
    taken = create(chat)
    lapse(taken.turn.key)
    owners = Owners(lambda: Agent(say("late")), chat.settings)
    until = time.monotonic() + PATIENCE_SECONDS
    assert finish.finish(taken.turn.key, owners=owners, settings=chat.settings, until=until) is None
    assert chat.session().claim is None
    assert chat.left() == [(taken.turn.turn_id, exchange("x", "late"))]


def half(turn: Turn) -> None:
    """Finish a step, say something that is withdrawn, and hang."""
    turn.model("m", None, lambda emit: emit("the first half"))
    turn.token(" withdrawn")
    stay()


@pytest.mark.parametrize("lost", ["deleted", "another turn's", "an entry"])
def test_a_turn_whose_session_changed_is_ended_clearly(chat: Chat, lost: str) -> None:
    """It would see another history than its first owner did."""
    old = chat.run(say("one"), "1")
    taken = create(chat)
    reference = sessions.reference(sessions.session_key(chat.owner, chat.id))
    if lost == "deleted":
        reference.delete()
    elif lost == "an entry":
        from google.cloud.firestore import DELETE_FIELD

        reference.update({f"history.`{record.turn_key(chat.owner, old)}`": DELETE_FIELD})
    else:
        reference.update({"turn": {"key": "other", "id": "other"}})
    ended = take_over(chat, taken.turn.turn_id, say("x"))
    assert ended.data["code"] == "gone"
    if lost == "deleted":
        assert not reference.get().exists
    else:
        assert (chat.session().claim is None) == (lost == "an entry")


def test_a_session_deleted_in_mid_turn_does_not_keep_it_from_ending(chat: Chat) -> None:
    """And is not made again."""
    reference = sessions.reference(sessions.session_key(chat.owner, chat.id))

    def run(turn: Turn) -> None:
        turn.token("x")
        reference.delete()

    turn_id = chat.run(run)
    assert chat.turn(turn_id).status == record.DONE
    assert not reference.get().exists


@pytest.mark.parametrize(
    "faults",
    [
        (Answer("UNAVAILABLE"),),
        (Answer("ABORTED"),),
        (DropAnswer("UNAVAILABLE"),),
        (DropAnswer("DEADLINE_EXCEEDED"),),
    ],
    ids=str,
)
def test_a_turn_leaves_its_entry_once_whatever_the_answer(
    faulty_storage: FirestoreProxy, faults: Sequence[Fault]
) -> None:
    """The answer to the terminal commit is lost, or it was not applied."""
    chat = Chat()
    chat.run(say("one"), "1")
    faulty_storage.inject("Commit", *faults, when=ends, times=2)
    second = chat.run(say("two"), "2")
    assert chat.turn(second).status == record.DONE
    assert [messages for _, messages in chat.left()] == [exchange("1", "one"), exchange("2", "two")]
    assert chat.session().claim is None


@pytest.mark.parametrize("fault", [Answer("UNAVAILABLE"), DropAnswer("UNAVAILABLE")], ids=str)
def test_a_session_deleted_while_its_turn_ends_does_not_matter(
    faulty_storage: FirestoreProxy, fault: Fault
) -> None:
    """The answer to the terminal commit is unclear, and the session deleted before it is read back:
    the turn ends, once.
    """
    chat = Chat()
    go = threading.Event()
    faulty_storage.inject("Commit", fault, when=ends, times=1)
    rule = faulty_storage.inject("BatchGetDocuments", Hold(go), when=CHUNK, times=1)
    turn_id = chat.start(say("x"))
    rule.wait()
    sessions.reference(sessions.session_key(chat.owner, chat.id)).delete()
    go.set()
    wait_until(lambda: chat.turn(turn_id).finished)
    assert chat.turn(turn_id).status == record.DONE
    assert len(list(journal.events(chat.turn(turn_id).key).stream())) == 1
    assert sessions.load(chat.owner, chat.id) is None


def test_a_session_deleted_while_its_turn_is_stopped_does_not_matter(
    faulty_storage: FirestoreProxy,
) -> None:
    """The stop looks again, and ends the turn without it."""
    chat = Chat()
    turn_id = chat.start(lambda _turn: stay())
    go = threading.Event()
    rule = faulty_storage.inject("Commit", Hold(go), when=SESSION, times=1)
    said: list[str] = []
    stop = threading.Thread(target=lambda: said.append(cancel.cancel(chat.owner, turn_id)))
    stop.start()
    rule.wait()
    sessions.reference(sessions.session_key(chat.owner, chat.id)).delete()
    go.set()
    stop.join()
    assert said == [record.CANCELLED]
    assert sessions.load(chat.owner, chat.id) is None


@pytest.mark.usefixtures("patient")
def test_what_a_session_and_the_limits_cost(faulty_storage: FirestoreProxy) -> None:
    """A start: one read of both documents, written in the commit that creates the turn. The end:
    the session, in the commit of the terminal event. Nothing else.
    """
    chat = Chat()
    chat.settings = settings(lease_seconds=LONGEST_LEASE)  # no renewal comes between
    chat.run(say("x"))
    began = time.monotonic()
    chat.start(lambda _turn: None)
    faulty_storage.wait_for(
        "Commit", lambda call: call.answered == "OK" and call.arrived > began, count=2
    )
    made = [
        (call.method, sorted(path.split("/")[-2] for path in paths(call.request)))
        for call in faulty_storage.calls
        if call.arrived > began
    ]
    owner, session, turn = "agent_owners", "agent_sessions", "agent_turns"
    assert made == [
        ("BatchGetDocuments", [owner, session]),
        ("Commit", [owner, session, turn]),
        ("Commit", [session, "agent_turn_events", turn]),
    ]


def test_fifty_turns_stay_within_the_bound(chat: Chat) -> None:
    """The oldest whole turns go first; the document stays under Firestore's limit."""
    big = "x" * 20_000
    for number in range(50):
        chat.run(lambda turn, number=number: turn.remember([number, big]))  # type: ignore[misc]  # bound now
    left = chat.left()
    numbers = [messages[0] for _, messages in left]
    assert numbers == list(range(50 - len(numbers), 50))
    assert chat.session().turns == 50
    size = sum(len(one.messages) for one in chat.session().entries)
    assert SESSION_HISTORY_BYTES - 2 * len(big) < size <= SESSION_HISTORY_BYTES
    chat.run(lambda turn: turn.remember(["x" * SESSION_HISTORY_BYTES]))
    session = chat.session()
    assert (session.entries[-1].dropped, session.entries[-1].messages) == (True, b"[]")
    assert len(session.entries) == len(left) + 1
