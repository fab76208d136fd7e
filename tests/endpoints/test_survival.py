"""Turns survive what happens to containers and clients."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from functions.wire import sse
from functions.wire.fold import Fold
from tests.conftest import Serve
from tests.support.client import folded, new_turn_id, resume, start
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.server import SOON_SECONDS
from tests.support.sse import Frame, Ping, RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


def numbers(last: int) -> str:
    """What `["count", 1, last, …]` says."""
    return "".join(f"{n} " for n in range(1, last + 1))


def journal_text(turn_id: str, serve: Serve) -> str:
    """The fold of a finished turn's journal, as a client sees it that was never there before."""
    with resume(serve("resume_turn"), turn_id, 0) as stream:
        stream.read_to_end()
        return folded(stream).text


def finish(stream: RawStream, turn_id: str, serve: Serve, state: Fold) -> Fold:
    """Go on like a client: fold what came, resume until the turn has ended."""
    server = serve("resume_turn")
    for _attempt in range(10):
        folded(stream, into=state)
        if state.ended:
            return state
        with resume(server, turn_id, state.cursor) as again:
            again.read_to_end()
            stream = again
    raise AssertionError("the turn did not end")


def test_a_follower_takes_over_from_a_killed_owner_by_itself(serve: Serve, gate: Gate) -> None:
    """Pings in the meantime; the text after the last finished step is withdrawn and told again."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=SOON_SECONDS), new_turn_id()
    script = [
        ["model", "first", [["count", 1, 5, 0]], "a"],
        ["count", 1, 20, 0],
        gate.action,
        ["count", 21, 200, 0],
    ]
    follow = serve("resume_turn", HEARTBEAT_SECONDS="0.3")
    with start(owner, turn_id, script) as cut:
        cut.read_until(1)
        with resume(follow, turn_id) as follower:
            seen = len(follower.read_until(20))
            owner.kill()
            gate.open()
            follower.read_until("rewind")
            frames = follower.frames()[seen:]
            rewind = next(f for f in frames if isinstance(f, Frame) and f.event == "rewind")
            assert rewind.data == {"to": 5, "length": len(numbers(5))}
            # Of the some thirty pings in nine seconds, on any machine.
            assert len([f for f in frames[: frames.index(rewind)] if isinstance(f, Ping)]) > 3
            follower.read_to_end()
            told = folded(follower)
            assert told.ended is not None
            assert told.text == f'{numbers(5)}[first: "a"]{numbers(200)}'
            # The cut client stood elsewhere; resuming brings it to the same text.
            assert finish(cut, turn_id, serve, Fold()).text == told.text


@pytest.mark.parametrize("seed", range(20))
def test_an_owner_killed_at_a_random_point_costs_nothing(serve: Serve, seed: int) -> None:
    """Nothing lost, nothing twice: every client ends with the text of the journal."""
    choose = random.Random(seed)
    owner, turn_id = serve("start_turn"), new_turn_id()
    script = [
        ["model", "one", [["count", 1, 20, 100]], 1],
        ["say", "between "],
        ["model", "two", [["count", 21, 40, 100]], 2],
        ["count", 41, 60, 100],
    ]
    with start(owner, turn_id, script) as stream:
        stream.read_until("ping")
        time.sleep(choose.uniform(0, 0.7))
        owner.kill()
        lapse_turn(turn_id)
        stream.read_to_end()
        state = finish(stream, turn_id, serve, Fold())
    expected = f"{numbers(20)}[one: 1]between "
    expected += f"{''.join(f'{n} ' for n in range(21, 41))}[two: 2]"
    expected += "".join(f"{n} " for n in range(41, 61))
    assert state.text == expected
    assert journal_text(turn_id, serve) == expected


def test_two_takeovers_in_a_row(serve: Serve, gate: Gate) -> None:
    """The second owner is killed, too; a client that slept through both gets one text."""
    first, second, turn_id = serve("start_turn"), serve("resume_turn"), new_turn_id()
    script = [["count", 1, 20, 0], gate.action, ["count", 21, 60, 0]]
    with start(first, turn_id, script) as asleep:
        asleep.read_until(10)
        first.kill()
        lapse_turn(turn_id)
        with resume(second, turn_id) as stream:
            stream.read_until("rewind")
            stream.read_until(15)
            second.kill()
        lapse_turn(turn_id)
        gate.open()
        state = finish(asleep, turn_id, serve, Fold())
    assert state.text == numbers(60)
    assert state.rewinds == 2


def test_clients_at_different_cursors_end_with_the_same_text(serve: Serve, gate: Gate) -> None:
    """One saw tokens that were never committed, one did not; no id means two things."""
    owner, turn_id = serve("start_turn", FLUSH_SECONDS="0.3"), new_turn_id()
    script = [["effect", "/dev/null"], ["count", 1, 18, 40], gate.action, ["count", 19, 40, 0]]
    with start(owner, turn_id, script) as ahead:
        ahead.read_until(18)
        owner.kill()
        lapse_turn(turn_id)
        gate.open()
        ahead.read_to_end()
        saw = {event.id: event.raw for event in ahead.events()}
        behind = Fold()
        with resume(serve("resume_turn"), turn_id, 3) as stream:
            stream.read_to_end()
            folded(stream, into=behind)
            for event in stream.events():
                assert saw.setdefault(event.id, event.raw) == event.raw
        assert finish(ahead, turn_id, serve, Fold()).text == numbers(40)
        assert behind.ended is not None


def test_a_frozen_owner_that_thaws_changes_nothing(
    serve: Serve, tmp_path: Path, gate: Gate
) -> None:
    """Its commits fail, it sends nothing, and it begins nothing more."""
    owner, turn_id = serve("start_turn", LEASE_SECONDS=SOON_SECONDS), new_turn_id()
    later = tmp_path / "later"
    script = [["count", 1, 20, 0], gate.action, ["count", 21, 40, 0]]
    script += [["effect", str(later)], ["say", "end"]]
    with start(owner, turn_id, script) as stale:
        stale.read_until(20)
        owner.freeze()
        gate.open()
        with resume(serve("resume_turn"), turn_id) as stream:
            stream.read_to_end()
            state = folded(stream)
        seen = len(stale.events())
        owner.thaw()
        # The thawed process follows the turn now, like anybody else.
        stale.read_to_end()
        assert folded(stale).text == state.text == numbers(40) + "end"
        late = stale.events()[seen:]
        assert all(event.id > 10_000 for event in late), "sent something of its lost epoch"
    assert journal_text(turn_id, serve) == state.text
    assert len(later.read_text().splitlines()) == 1


def test_an_owner_frozen_for_less_than_its_lease_goes_on(serve: Serve, gate: Gate) -> None:
    """A short pause is no death."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 10, 0], gate.action, ["count", 11, 40, 0]]) as stream:
        stream.read_until(10)
        owner.freeze()
        time.sleep(0.7)
        gate.open()
        owner.thaw()
        stream.read_to_end()
        assert folded(stream).text == numbers(40)
        assert folded(stream).rewinds == 0


def test_a_turn_goes_on_when_its_client_leaves(serve: Serve) -> None:
    """Leaving is not stopping: the turn is finished and can be read afterwards."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 40, 40]]) as stream:
        stream.read_until(5)
        stream.abort()
    with resume(serve("resume_turn"), turn_id, 5) as stream:
        stream.read_to_end()
        state = folded(stream, into=Fold(text=numbers(5), cursor=5))
    assert state.text == numbers(40)
    assert state.rewinds == 0


def test_a_container_that_is_told_to_end_and_then_killed(serve: Serve, gate: Gate) -> None:
    """SIGTERM, then SIGKILL: what was shown and committed stays, and another one finishes."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 20, 0], gate.action, ["count", 21, 80, 0]]) as stream:
        stream.read_until(20)
        owner.terminate()
        time.sleep(0.5)
        owner.kill()
        lapse_turn(turn_id)
        gate.open()
        stream.read_to_end()
        assert not folded(stream).ended
        assert finish(stream, turn_id, serve, Fold()).text == numbers(80)


def test_an_owner_that_dies_before_its_first_commit(serve: Serve, gate: Gate) -> None:
    """The epoch chunk is the journal's first; its rewind is to the start."""
    owner, turn_id = serve("start_turn", FLUSH_SECONDS="2"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 3, 0], gate.action, ["count", 4, 20, 0]]) as stream:
        stream.read_until(3)
        owner.kill()
        lapse_turn(turn_id)
        gate.open()
        stream.read_to_end()
        state = finish(stream, turn_id, serve, Fold())
    assert state.text == numbers(20)


def test_a_finished_model_step_is_not_made_again(serve: Serve, tmp_path: Path, gate: Gate) -> None:
    """Its recorded response reaches the re-run; the one that was cut off is made anew."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    first, second = tmp_path / "first", tmp_path / "second"
    counting = [["count", 1, 10, 0], gate.action, ["count", 11, 20, 0]]
    script = [
        ["model", "one", [["effect", str(first)], ["say", "A"]], {"kept": [1, None, False]}],
        ["model", "two", [["effect", str(second)], *counting], "two"],
    ]
    with start(owner, turn_id, script) as stream:
        stream.read_until(8)
        owner.kill()
        lapse_turn(turn_id)
        gate.open()
        stream.read_to_end()
        state = finish(stream, turn_id, serve, Fold())
    assert len(first.read_text().splitlines()) == 1
    assert len(second.read_text().splitlines()) == 2
    assert state.text == f'A[one: {{"kept": [1, null, false]}}]{numbers(20)}[two: "two"]'


def test_a_busy_agent_keeps_its_lease(serve: Serve) -> None:
    """Python that burns CPU for longer than a lease is neither taken over nor silent."""
    server = serve("start_turn", LEASE_SECONDS=SOON_SECONDS, HEARTBEAT_SECONDS="0.5")
    turn_id = new_turn_id()
    script = [["say", "a"], ["burn", 12], ["say", "b"]]
    resumer = serve("resume_turn")
    with start(server, turn_id, script) as stream:
        stream.read_until(1)
        with resume(resumer, turn_id) as other:
            stream.read_to_end()
            other.read_to_end()
        assert folded(stream).text == folded(other).text == "ab"
        assert folded(stream).rewinds == folded(other).rewinds == 0
        first, last = (stream.frames().index(event) for event in stream.events()[:2])
        # Of the some twenty pings in twelve seconds, on any machine.
        assert last - first > 6


def test_every_chunk_on_the_wire_is_whole_frames(serve: Serve) -> None:
    """Also when the writer is stopped in the middle: no frame is ever cut by us."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 300, 300]]) as stream:
        stream.read_until(150)
        owner.kill()
        stream.read_to_end()
        pieces = stream.chunks
    for piece in pieces:
        assert piece.endswith(b"\n\n")
        assert all(isinstance(frame.id, int) for frame in sse.decode(piece.replace(sse.PING, b"")))


def test_an_agent_of_another_version_ends_a_turn_it_cannot_continue(
    serve: Serve, gate: Gate
) -> None:
    """It says which version began the turn, and which it is."""
    owner, turn_id = serve("start_turn", AGENT_VERSION="1"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 10, 0], gate.action]) as stream:
        stream.read_until(8)
        owner.kill()
        lapse_turn(turn_id)
    with resume(serve("resume_turn", AGENT_VERSION="2"), turn_id) as stream:
        stream.read_to_end()
        last = stream.events()[-1]
    assert (last.event, last.data["code"]) == ("error", "agent_changed")
    assert "'1'" in last.data["message"]
    assert "'2'" in last.data["message"]


def test_a_rerun_that_asks_something_else_ends_with_an_error_that_says_what(
    serve: Serve, gate: Gate
) -> None:
    """A step's name at a position must stay what was recorded there."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    script = [["model of this process", "step", [["say", "A"]]], ["count", 1, 10, 0], gate.action]
    with start(owner, turn_id, script) as stream:
        stream.read_until(8)
        owner.kill()
        lapse_turn(turn_id)
    with resume(serve("resume_turn"), turn_id) as stream:
        stream.read_to_end()
        last = stream.events()[-1]
    assert (last.event, last.data["code"]) == ("error", "agent_changed")
    assert "step 1" in last.data["message"]


def test_ids_only_go_up(serve: Serve, gate: Gate) -> None:
    """Over a takeover, for a reader of the whole journal."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["count", 1, 20, 0], gate.action, ["count", 21, 60, 0]]) as stream:
        stream.read_until(10)
        owner.kill()
        lapse_turn(turn_id)
        gate.open()
    with resume(serve("resume_turn"), turn_id) as stream:
        stream.read_to_end()
        ids = [event.id for event in stream.events()]
    assert all(later > earlier for earlier, later in itertools.pairwise(ids))
