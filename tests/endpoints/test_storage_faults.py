"""Turns while Firestore misbehaves between the process and the emulator."""

from __future__ import annotations

import time

import pytest

from functions.wire.fold import Fold
from tests.conftest import Serve
from tests.support.client import error_of, folded, new_turn_id, resume, start
from tests.support.firestore_proxy import (
    Answer,
    CutStream,
    Delay,
    DelayAnswer,
    DropAnswer,
    Fault,
    FirestoreProxy,
    Hang,
    touches,
)
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.patience import wait_until
from tests.support.server import SOON_SECONDS
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

EVENTS = touches(r"agent_turns/[^/]+/agent_turn_events/\d+$")
TURN = touches(r"agent_turns/[^/]+$")
TEXT_100 = "".join(f"{n} " for n in range(1, 101))


@pytest.mark.parametrize(
    "faults",
    [
        (Answer("ABORTED"),),
        (Answer("UNAVAILABLE"),),
        (DropAnswer("UNAVAILABLE"),),
        (DropAnswer("DEADLINE_EXCEEDED"),),
        (DelayAnswer(0.3),),
        (Delay(0.3), DropAnswer("UNAVAILABLE")),
    ],
    ids=str,
)
def test_a_turn_gets_through_bad_commits(
    serve: Serve, firestore_proxy: FirestoreProxy, faults: tuple[Fault, ...]
) -> None:
    """Every other commit goes wrong; nothing is lost, nothing twice, no lease is lost."""
    server = serve("start_turn", storage=firestore_proxy.address)
    turn_id = new_turn_id()
    for skip in range(0, 40, 2):
        firestore_proxy.inject("Commit", *faults, when=EVENTS, times=1, after=skip // 2)
    with start(server, turn_id, [["count", 1, 100, 50]]) as stream:
        stream.read_to_end()
        assert folded(stream).text == TEXT_100
        assert folded(stream).rewinds == 0
    with resume(serve("resume_turn"), turn_id) as replay:
        replay.read_to_end()
        assert folded(replay).text == TEXT_100
        assert [event.id for event in replay.events()] == list(range(1, 102))


def test_a_chunk_that_is_refused_for_good_ends_the_turn_clearly(
    serve: Serve, firestore_proxy: FirestoreProxy
) -> None:
    """Its text, which was shown, is withdrawn; it is never sent again."""
    server = serve("start_turn", storage=firestore_proxy.address)
    turn_id = new_turn_id()
    firestore_proxy.inject("Commit", Answer("INVALID_ARGUMENT"), when=EVENTS, times=1, after=3)
    with start(server, turn_id, [["count", 1, 100, 50]]) as stream:
        stream.read_to_end()
        state = folded(stream)
        assert state.ended is not None
        assert state.ended.data["code"] == "journal_refused"
        assert state.rewinds == 1
    with resume(serve("resume_turn"), turn_id) as replay:
        replay.read_to_end()
        assert folded(replay).text == state.text
        assert TEXT_100.startswith(state.text)


def test_an_agent_that_swallows_everything_cannot_hide_a_refused_chunk(
    serve: Serve, firestore_proxy: FirestoreProxy
) -> None:
    """The turn does not end as a success that is not in the journal."""
    server = serve("start_turn", storage=firestore_proxy.address)
    firestore_proxy.inject("Commit", Answer("INVALID_ARGUMENT"), when=EVENTS, times=1, after=2)
    script = [["swallow", [["count", 1, 100, 50]]]]
    with start(server, new_turn_id(), script) as stream:
        stream.read_to_end()
        assert stream.events()[-1].data["code"] == "journal_refused"


def own_events(stream: RawStream) -> int:
    """How many of the first epoch have come."""
    return len([event for event in stream.events() if event.id < 10_000])


def test_an_owner_cut_off_from_storage_stops_in_time_and_shows_nothing_more(
    serve: Serve, firestore_proxy: FirestoreProxy, gate: Gate
) -> None:
    """Its stream goes on as a follower's: pings, and then the turn of whoever took over."""
    server = serve(
        "start_turn",
        storage=firestore_proxy.address,
        LEASE_SECONDS=SOON_SECONDS,
        HEARTBEAT_SECONDS="0.5",
    )
    turn_id = new_turn_id()
    with start(server, turn_id, [["count", 1, 2000, 50, str(gate)]]) as stream:
        stream.read_until(20)
        rule = firestore_proxy.inject("*", Hang())
        with resume(serve("resume_turn"), turn_id) as other:
            other.read_until("rewind")
            time.sleep(1)  # what was shown in time may still be on its way
            shown, pings = own_events(stream), stream.pings
            wait_until(lambda: stream.pings > pings + 1)
            time.sleep(1)
            assert own_events(stream) == shown, "showed something past its deadline"
            gate.open()
            other.read_to_end()
            text = folded(other).text
        assert text == "".join(f"{n} " for n in range(1, 2001))
        firestore_proxy.remove(rule)
        stream.read_to_end()
        state = folded(stream)
        if not state.ended:  # out of patience: the client resumes
            with resume(serve("resume_turn"), turn_id, state.cursor) as again:
                again.read_to_end()
                folded(again, into=state)
        assert state.text == text


@pytest.mark.parametrize("fault", [Hang(), DelayAnswer(1.5), Answer("UNAVAILABLE")], ids=str)
def test_a_follower_pings_on_time_whatever_storage_does(
    serve: Serve, firestore_proxy: FirestoreProxy, gate: Gate, fault: Fault
) -> None:
    """It stays alive while its reads hang, are slow or fail (X2)."""
    starter, turn_id = serve("start_turn"), new_turn_id()
    follow = serve("resume_turn", storage=firestore_proxy.address, HEARTBEAT_SECONDS="1")
    with start(starter, turn_id, [["count", 1, 1200, 30, str(gate)]]) as owner:
        owner.read_until(1)
        with resume(follow, turn_id) as follower:
            follower.read_until(5)
            rule = firestore_proxy.inject("BatchGetDocuments", fault)
            rule.wait(2)
            pings = follower.pings
            wait_until(lambda: follower.pings > pings + 3)
            firestore_proxy.remove(rule)
            gate.open()
            follower.read_to_end()
            state = folded(follower)
        if not state.ended:
            with resume(serve("resume_turn"), turn_id, state.cursor) as again:
                again.read_to_end()
                folded(again, into=state)
    assert state.text == "".join(f"{n} " for n in range(1, 1201))


@pytest.mark.parametrize("method", ["Commit", "BatchGetDocuments", "RunQuery"])
def test_storage_that_is_away_is_503(
    serve: Serve, firestore_proxy: FirestoreProxy, method: str
) -> None:
    """With Retry-After, in bounded time; the client's next attempt succeeds."""
    starter, turn_id = serve("start_turn"), new_turn_id()
    with start(starter, turn_id, [["count", 1, 5, 0]]) as stream:
        stream.read_to_end()
    resumer = serve("resume_turn", storage=firestore_proxy.address, READ_SECONDS="5")
    rule = firestore_proxy.inject(method, Answer("UNAVAILABLE"))
    with resume(resumer, turn_id) as stream:
        assert (stream.status, error_of(stream)["code"]) == (503, "storage_unavailable")
        assert int(stream.headers["retry-after"]) > 0
    firestore_proxy.remove(rule)
    with resume(resumer, turn_id) as stream:
        stream.read_to_end()
        assert folded(stream, into=Fold()).ended


def test_an_error_in_the_middle_of_a_query_is_like_any_other(
    serve: Serve, firestore_proxy: FirestoreProxy, gate: Gate
) -> None:
    """The SDK hides it in an AttributeError; it is tried again, and never ends a turn."""
    starter, turn_id = serve("start_turn"), new_turn_id()
    script = [
        ["model", "one", [["count", 1, 30, 60]], 1],
        ["model", "two", [["say", "-"]], 2],
        ["count", 31, 45, 0],
        gate.action,
        ["count", 46, 60, 0],
    ]
    with start(starter, turn_id, script) as stream:
        stream.read_until(40)
        starter.kill()
    lapse_turn(turn_id)
    gate.open()
    cuts = [firestore_proxy.inject("RunQuery", CutStream(1, "UNAVAILABLE"), times=4)]
    with resume(serve("resume_turn", storage=firestore_proxy.address), turn_id) as stream:
        assert stream.status == 200
        stream.read_to_end()
        assert folded(stream).ended is not None
        assert folded(stream).text.count("[one: 1]") == 1
        assert folded(stream).text.endswith("60 ")
    cuts[0].wait(2)


def test_a_follower_whose_reads_are_slow_still_takes_over(
    serve: Serve, firestore_proxy: FirestoreProxy, gate: Gate
) -> None:
    """Each read has its own time: a slow journal does not hide a dead owner."""
    starter, turn_id = serve("start_turn", LEASE_SECONDS=SOON_SECONDS), new_turn_id()
    follow = serve("resume_turn", storage=firestore_proxy.address, HEARTBEAT_SECONDS="2")
    with start(starter, turn_id, [["count", 1, 10, 0], gate.action]) as owner:
        owner.read_until(5)
        with resume(follow, turn_id) as follower:
            follower.read_until(3)
            firestore_proxy.inject("BatchGetDocuments", DelayAnswer(0.5))
            starter.kill()
            pings = follower.pings
            follower.read_until("rewind")
            assert follower.pings > pings + 1  # of some six in nine seconds, on any machine


def test_a_turn_that_was_made_but_not_answered_is_run_once(
    serve: Serve, firestore_proxy: FirestoreProxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The creating commit's answer is lost: the creator recognises its own turn."""
    effects = tmp_path_factory.mktemp("effects") / "runs"
    server = serve("start_turn", storage=firestore_proxy.address)
    firestore_proxy.inject("Commit", DropAnswer("UNAVAILABLE"), when=TURN, times=1)
    with start(server, new_turn_id(), [["effect", str(effects)], ["say", "once"]]) as stream:
        stream.read_to_end()
        assert folded(stream).text == "once"
        assert folded(stream).rewinds == 0
    assert len(effects.read_text().splitlines()) == 1
