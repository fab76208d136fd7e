"""Limits of one owner: exact (O1), looked at only when reached (O2), by server times (O3)."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions import firestore
from functions.errors import LimitReached, SessionBusy, TooManyRunningTurns, TooManyTurns
from functions.turns import creation, quota, record
from functions.turns.limits import MINUTE, Granted, Limits, Look, Refused, Tally, decide
from functions.turns.record import Request
from functions.turns.takeover import Taken
from tests.support.firestore_proxy import Answer, DropAnswer, FirestoreProxy, touches
from tests.support.lapse import lapse
from tests.turns.conftest import settings

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LIMITS = Limits(running=3, per_minute=5)
TURNS = st.text("abcdefghij", min_size=1, max_size=1)
AGES = st.floats(0, 120).map(lambda seconds: NOW - timedelta(seconds=seconds))
TALLIES = st.builds(
    Tally, st.dictionaries(TURNS, AGES, max_size=8), st.frozensets(TURNS, max_size=6)
)


@given(TALLIES, st.none() | st.frozensets(TURNS))
def test_a_start_is_let_in_exactly_when_both_limits_allow_it(
    tally: Tally, running: frozenset[str] | None
) -> None:
    """And what is counted never loses a turn that matters."""
    recent = {turn for turn, at in tally.starts.items() if NOW - at < MINUTE}
    decision = decide(tally, LIMITS, NOW, running)
    if len(recent) >= LIMITS.per_minute:
        assert isinstance(decision, Refused)
        assert decision.of_the_minute
    elif len(tally.running) < LIMITS.running:
        assert decision == Granted(
            Tally({turn: tally.starts[turn] for turn in recent}, tally.running)
        )
    elif running is None:
        assert decision == Look(tally.running)
    elif len(tally.running & running) < LIMITS.running:
        assert isinstance(decision, Granted)
        assert decision.tally.running == tally.running & running
        assert set(decision.tally.starts) == recent
    else:
        assert isinstance(decision, Refused)
        assert not decision.of_the_minute


@given(TALLIES)
def test_after_the_time_it_was_told_a_start_is_of_another_minute(tally: Tally) -> None:
    """Not earlier than a second before, for the header has whole seconds."""
    decision = decide(tally, LIMITS, NOW, [])
    if isinstance(decision, Refused):
        seconds = decision.retry_after_seconds
        assert 1 <= seconds <= 60
        then = NOW + timedelta(seconds=seconds)
        assert isinstance(decide(tally, LIMITS, then, []), Granted)
        if seconds > 1:
            before = then - timedelta(seconds=1)
            assert isinstance(decide(tally, LIMITS, before, []), Refused)


def test_a_minute_ends_at_its_boundary() -> None:
    """A start is of the last minute for less than 60 s."""
    starts = dict.fromkeys("abcde", NOW)
    assert isinstance(decide(Tally(starts), LIMITS, NOW + MINUTE), Granted)
    just_before = NOW + MINUTE - timedelta(microseconds=1)
    assert decide(Tally(starts), LIMITS, just_before) == Refused(True, 1)


# The rest is on the emulator.


class User:
    """A new user, and turns of theirs that nobody runs."""

    def __init__(self, running: int = 1000, per_minute: int = 1000, **changed: float) -> None:
        self.owner = f"uid:{uuid.uuid4()}"
        self._settings = settings(
            max_running_turns=running, max_turns_per_minute=per_minute, **changed
        )

    def create(self, turn_id: str | None = None, session: str | None = None) -> Taken | None:
        """Start a turn. Raises as `creation.create` does."""
        return creation.create(
            self.owner,
            turn_id or str(uuid.uuid4()),
            Request("x", session),
            agent_version="1",
            settings=self._settings,
        )

    def started(self) -> Taken:
        """A turn that was let in."""
        taken = self.create()
        assert taken is not None
        return taken

    def document(self) -> dict[str, Any]:
        """What is counted."""
        return quota.reference(self.owner).get().to_dict() or {}


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("limit", ["running", "per_minute"])
def test_ten_starts_at_once_are_not_let_in_over_the_limit(limit: str) -> None:
    """One below the limit, one of ten gets in."""
    user = User(**{limit: 4})
    for _ in range(3):
        user.started()
    line = threading.Barrier(10)

    def start(_: int) -> Taken | LimitReached | None:
        line.wait()
        try:
            return user.create()
        except LimitReached as refused:
            return refused

    with ThreadPoolExecutor(10) as pool:
        came = list(pool.map(start, range(10)))
    let_in = [one for one in came if isinstance(one, Taken)]
    assert len(let_in) == 1
    kind = TooManyRunningTurns if limit == "running" else TooManyTurns
    assert all(isinstance(one, kind) for one in came if one not in let_in)
    assert len(user.document()["starts"]) == 4


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_a_start_again_attaches_at_the_limit() -> None:
    """No limit refuses a retry of a turn that exists."""
    user = User(running=1, per_minute=1)
    taken = user.started()
    with pytest.raises(TooManyTurns) as refused:
        user.create()
    assert 50 <= int(refused.value.headers["Retry-After"]) <= 60
    assert user.create(taken.turn.turn_id) is None


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("ended", ["done", "waiting", "gone", "lapsed"])
def test_a_turn_that_runs_no_more_makes_room(ended: str) -> None:
    """It is looked at when the limit is reached, and not before."""
    user = User(running=2)
    taken = user.started()
    user.started()
    with pytest.raises(TooManyRunningTurns) as refused:
        user.create()
    assert refused.value.headers["Retry-After"] == "5"
    document = record.reference(taken.turn.key)
    if ended == "gone":
        document.delete()
    elif ended == "lapsed":
        lapse(taken.turn.key)
        assert not record.owned([taken.turn.key])
    else:
        document.update({"status": ended})
    let_in = user.started()
    if ended != "lapsed":
        assert let_in.turn.key in user.document()["running"]
        assert taken.turn.key not in user.document()["running"]
        assert taken.turn.key in user.document()["starts"]  # still of the last minute


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_a_start_older_than_a_minute_leaves() -> None:
    """With the next start; its turn may run on and counts as running."""
    user = User(per_minute=1)
    taken = user.started()
    with pytest.raises(TooManyTurns):
        user.create()
    old = datetime.now(UTC) - timedelta(seconds=61)
    quota.reference(user.owner).update({"starts": {taken.turn.key: old}})
    user.started()
    assert len(user.document()["starts"]) == 1
    assert len(user.document()["running"]) == 2


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_owners_do_not_count_for_each_other_and_callers_without_a_user_not_at_all() -> None:
    """The limits are each user's own."""
    first, second, nobody = User(per_minute=1), User(per_minute=1), User(per_minute=1)
    nobody.owner = "app:x:y"
    first.started()
    second.started()
    nobody.started()
    nobody.started()
    assert nobody.document() == {}


@pytest.mark.emulator
def test_a_start_whose_answer_is_lost_counts_once(faulty_storage: FirestoreProxy) -> None:
    """Applied or not, it is read back or sent again."""
    user = User()
    owners = touches(r"agent_owners/[^/]+")
    faulty_storage.inject("Commit", DropAnswer("UNAVAILABLE"), when=owners, times=1)
    faulty_storage.inject("Commit", Answer("ABORTED"), when=owners, times=1)
    first, second = user.started(), user.started()
    assert set(user.document()["running"]) == {first.turn.key, second.turn.key}


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_of_two_tabs_one_gets_the_session() -> None:
    """The other one is told which turn has it; a refusal counts nothing."""
    user = User()
    line = threading.Barrier(4)

    def start(_: int) -> Taken | SessionBusy | None:
        line.wait()
        try:
            return user.create(session="chat")
        except SessionBusy as busy:
            return busy

    with ThreadPoolExecutor(4) as pool:
        came = list(pool.map(start, range(4)))
    (winner,) = [one for one in came if isinstance(one, Taken)]
    told = [one.more["turnId"] for one in came if isinstance(one, SessionBusy)]
    assert told == [winner.turn.turn_id] * 3
    assert user.document()["running"] == [winner.turn.key]


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_what_is_counted_is_kept_as_long_as_a_turn_may_run() -> None:
    """From the last start on."""
    user = User()
    user.started()
    before = user.document()
    assert before["owner"] == user.owner
    age = before[firestore.EXPIRE_AT] - datetime.now(UTC)
    assert timedelta(hours=23) < age < timedelta(hours=25)
