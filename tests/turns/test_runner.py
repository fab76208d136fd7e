"""Owners in this process: what they do when something of ours, or of the machine, breaks down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from functions.errors import AtCapacity, LeaseLost, NotConfigured
from functions.turns import journal, record
from functions.turns.owners import Owners
from functions.turns.program import Agent, Turn
from functions.turns.runner import MAX_ATTEMPTS
from functions.turns.takeover import Taken
from functions.turns.tools import Call, tool
from functions.wire import sse
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import Create, lapsed, load, renew, settings, shortened
from tests.turns.test_append import append, chunk

pytestmark = pytest.mark.emulator


def owners(run: Callable[[Turn], None]) -> Owners:
    """The owners of a process that serves this agent."""
    return Owners(lambda: Agent(run), settings())


def last_event(taken: Taken) -> sse.Frame:
    """The end of the journal."""
    tail = journal.tail(taken.turn.key)
    assert tail is not None
    return list(sse.decode(tail.frames))[-1]


@pytest.mark.usefixtures("storage")
def test_a_turn_that_makes_no_progress_is_given_up(create: Create) -> None:
    """An agent that kills its container would be run again for ever."""
    taken = create()
    append(taken, chunk(taken, 0))
    reference = record.reference(taken.turn.key)
    reference.update({"lease.epoch": MAX_ATTEMPTS})
    ran: list[str] = []
    mine = owners(lambda turn: ran.append(turn.id))
    mine.take_over(lapsed(taken))
    wait_until(lambda: load(taken).finished)
    assert last_event(taken).data["code"] == "no_progress"
    assert ran == []


@pytest.mark.usefixtures("storage")
def test_nobody_takes_a_turn_that_they_cannot_run(create: Create) -> None:
    """A deployment whose agent does not load, or lacks its secret, uses up no attempt of a turn."""

    def missing() -> Agent:
        raise NotConfigured("the secret is not set")

    taken = create()
    mine, turn = Owners(missing, settings()), lapsed(taken)
    mine.take_over(turn)
    wait_until(lambda: not mine._owners)
    with pytest.raises(NotConfigured):
        mine.finish(turn, until=time.monotonic() + 5)
    assert load(taken).holder.epoch == 1
    owners(lambda turn: turn.token("hello")).take_over(turn)
    wait_until(lambda: load(taken).finished)
    assert last_event(taken).type == "done"


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("name", ["journal", "lease-renewal", "owner"])
def test_a_container_without_threads_gives_the_turn_up(
    create: Create, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its lease is not renewed by anything left behind: another container takes the turn."""
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    taken = shortened(create(), 1)
    mine = owners(lambda turn: turn.token("x"))
    if name == "owner":
        with pytest.raises(AtCapacity):
            mine.own(taken)
    else:
        mine.own(taken)
    wait_until(lambda: load(taken).lapsed)
    wait_until(lambda: mine.writer(taken.turn.key) is None)


@pytest.mark.usefixtures("storage")
def test_a_step_is_not_begun_after_the_lease_is_lost(create: Create) -> None:
    """The agent slept through the loss; its next step does not run (W3)."""
    called: list[str] = []
    sleeps, sees = threading.Event(), threading.Event()
    wakes = threading.Event()

    def run(turn: Turn) -> None:
        sleeps.set()
        wakes.wait()
        try:
            turn.model("m", None, lambda _emit: called.append("called"))
        except LeaseLost:
            sees.set()
            raise

    taken = create()
    owners(run).own(taken)
    assert sleeps.wait(PATIENCE_SECONDS)
    taken.lease._clock = lambda: time.monotonic() + taken.lease.holder.seconds
    wakes.set()
    assert sees.wait(PATIENCE_SECONDS)
    assert called == []


@pytest.mark.usefixtures("storage")
def test_a_turn_past_its_retention_is_not_renewed(create: Create) -> None:
    """A blocked agent cannot hold a turn for ever."""
    taken = create()
    renew(replace(taken, turn=replace(taken.turn, expire_at=taken.turn.updated_at)), 1)
    assert taken.lease.lost
    assert load(taken).holder.beat == 0


@pytest.mark.usefixtures("storage")
def test_no_thread_outlives_its_turn(create: Create) -> None:
    """Twenty turns, and as many threads as before."""
    mine = owners(lambda turn: turn.token("hello"))
    before = threading.active_count()
    turns = [create() for _ in range(20)]
    for taken in turns:
        mine.own(taken)
    wait_until(lambda: all(load(taken).finished for taken in turns))
    wait_until(lambda: threading.active_count() <= before)
    assert not mine._owners


@pytest.mark.usefixtures("storage")
def test_a_step_begun_inside_a_tool_ends_the_turn(create: Create) -> None:
    """Its position would depend on which tool is faster: it is refused, whoever catches it."""

    def run(turn: Turn) -> None:
        @tool()
        def nesting(call: Call) -> object:
            return turn.model(f"inside-{call.step}", None, lambda _emit: 1)

        turn.call(nesting)

    taken = create()
    owners(run).own(taken)
    wait_until(lambda: load(taken).finished)
    assert last_event(taken).data["code"] == "nested_step"


@pytest.mark.usefixtures("storage")
def test_a_turn_given_back_by_an_agent_that_hangs_is_taken_over_here_too(create: Create) -> None:
    """The next look may come to the same container, where that agent's thread still waits."""
    began, hangs = threading.Event(), threading.Event()

    def run(turn: Turn) -> None:
        if not began.is_set():
            began.set()
            hangs.wait()
        turn.token("hello")

    taken = create()
    mine = owners(run)
    mine.take_over(lapsed(taken))
    assert began.wait(PATIENCE_SECONDS)
    mine.finish(load(taken), until=time.monotonic())
    wait_until(lambda: load(taken).lapsed)
    try:
        mine.take_over(load(taken))
        wait_until(lambda: load(taken).finished)
    finally:
        hangs.set()
    wait_until(lambda: all(thread.name != "owner" for thread in threading.enumerate()))


async def answer(turn: Turn, words: str) -> None:
    """An agent's, to be called by something that awaits it."""
    turn.token(words)


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize(
    "run", [lambda turn: answer(turn, "abc"), lambda turn: (turn.token(word) for word in "abc")]
)
def test_an_agent_of_which_nothing_runs_fails(create: Create, run: Callable[[Turn], None]) -> None:
    """No declaration can tell that it returns a coroutine; the turn must not end well, wordless."""
    taken = create()
    owners(run).own(taken)
    wait_until(lambda: load(taken).finished)
    assert last_event(taken).data["code"] == "agent_failed"
