"""Retention: past it everything is gone, explicitly, deleted yet or not."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from functions import firestore
from functions.turns import journal, record
from tests.conftest import Serve
from tests.support.client import error_of, folded, key_of, new_turn_id, resume, start
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.server import SOON_SECONDS, FunctionServer
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


@pytest.fixture
def finished(serve: Serve) -> tuple[FunctionServer, FunctionServer, str]:
    """A turn of 60 numbers, over many chunks; its processes of both functions."""
    starter, resumer, turn_id = serve("start_turn"), serve("resume_turn"), new_turn_id()
    with start(starter, turn_id, [["count", 1, 60, 60]]) as stream:
        stream.read_to_end()
    return starter, resumer, turn_id


def assert_gone(stream: RawStream) -> None:
    """410, with the code that says so."""
    with stream:
        assert (stream.status, error_of(stream)["code"]) == (410, "gone")


def test_everything_about_a_turn_past_its_retention_is_gone(
    finished: tuple[FunctionServer, FunctionServer, str],
) -> None:
    """Though nothing is deleted yet; also for a start, which must not run it again."""
    starter, resumer, turn_id = finished
    past = datetime.now(UTC) - timedelta(seconds=1)
    record.reference(key_of(turn_id)).update({firestore.EXPIRE_AT: past})
    for cursor in (0, 10, 61):
        assert_gone(resume(resumer, turn_id, cursor))
        assert_gone(start(starter, turn_id, [["count", 1, 60, 60]], cursor))


def test_a_cursor_before_a_deleted_chunk_is_told(
    finished: tuple[FunctionServer, FunctionServer, str],
) -> None:
    """1 to 40 are deleted: cursors 0 and 10 have lost something, a later one has not."""
    _starter, resumer, turn_id = finished
    key = key_of(turn_id)
    chunks = journal.page(key, 0).chunks
    kept = chunks[len(chunks) // 2]
    for chunk in chunks[: kept.index]:
        journal.document(key, chunk.index).delete()
    assert_gone(resume(resumer, turn_id, 0))
    assert_gone(resume(resumer, turn_id, kept.after - 1))
    with resume(resumer, turn_id, kept.after) as stream:
        stream.read_to_end()
        assert folded(stream).ended


def test_a_hole_in_the_middle_ends_the_stream_and_is_then_told(
    finished: tuple[FunctionServer, FunctionServer, str],
) -> None:
    """Nothing after the hole is shown as if nothing were missing."""
    _starter, resumer, turn_id = finished
    key = key_of(turn_id)
    chunks = journal.page(key, 0).chunks
    hole = chunks[len(chunks) // 2]
    journal.document(key, hole.index).delete()
    with resume(resumer, turn_id, 0) as stream:
        assert stream.read_to_end() == "complete"
        state = folded(stream)
        assert (state.cursor, state.ended) == (hole.after, None)
    assert_gone(resume(resumer, turn_id, state.cursor))


def test_a_lost_end_is_told(finished: tuple[FunctionServer, FunctionServer, str]) -> None:
    """The terminal event is deleted: neither 204 nor silence."""
    _starter, resumer, turn_id = finished
    key = key_of(turn_id)
    last = journal.page(key, 0).chunks[-1]
    journal.document(key, last.index).delete()
    with resume(resumer, turn_id, 0) as stream:
        stream.read_to_end()
        state = folded(stream)
        assert state.ended is None
    assert_gone(resume(resumer, turn_id, state.cursor))


def test_nobody_takes_over_a_turn_past_its_retention(serve: Serve, gate: Gate) -> None:
    """Its owner died; a follower that waits is told, and no agent runs."""
    starter, resumer = serve("start_turn", LEASE_SECONDS=SOON_SECONDS), serve("resume_turn")
    turn_id = new_turn_id()
    with start(starter, turn_id, [["count", 1, 20, 0], gate.action]) as stream:
        stream.read_until(10)
        with resume(resumer, turn_id) as follower:
            follower.read_until(5)
            starter.kill()
            past = datetime.now(UTC) - timedelta(seconds=1)
            record.reference(key_of(turn_id)).update({firestore.EXPIRE_AT: past})
            follower.read_to_end()
            assert not folded(follower).ended
            assert folded(follower).rewinds == 0
    assert_gone(resume(resumer, turn_id, 5))
    time.sleep(2)
    assert not [line for line in resumer.log_lines() if line["message"] == "took over"]


def test_a_lapsed_turn_without_its_beginning_is_ended_and_not_run_again(
    serve: Serve, gate: Gate
) -> None:
    """A follower that stood behind the hole is told; running it again would repeat effects."""
    starter, resumer, turn_id = serve("start_turn"), serve("resume_turn"), new_turn_id()
    with start(starter, turn_id, [["count", 1, 30, 40], gate.action]) as stream:
        stream.read_until(20)
        starter.kill()
        lapse_turn(turn_id)
        stream.read_to_end()
    key = key_of(turn_id)
    first = journal.page(key, 0).chunks[0]
    journal.document(key, 0).delete()
    with resume(resumer, turn_id, first.last) as stream:
        stream.read_to_end()
        last = stream.events()[-1]
        assert (last.event, last.data["code"]) == ("error", "gone")
    assert_gone(resume(resumer, turn_id, 0))


def test_all_documents_of_a_turn_expire_at_one_instant(
    finished: tuple[FunctionServer, FunctionServer, str],
) -> None:
    """Fixed when the turn was made."""
    _starter, _resumer, turn_id = finished
    key = key_of(turn_id)
    turn = record.load(key)
    assert turn is not None
    assert abs(turn.expire_at - datetime.now(UTC) - timedelta(hours=24)) < timedelta(minutes=2)
    times = {doc.get(firestore.EXPIRE_AT) for doc in journal.events(key).stream()}
    assert times == {turn.expire_at}


def test_a_turn_of_a_newer_schema_is_left_alone(
    finished: tuple[FunctionServer, FunctionServer, str],
) -> None:
    """503: a newer version will know what to do with it."""
    _starter, resumer, turn_id = finished
    record.reference(key_of(turn_id)).update({"schema": record.SCHEMA + 1})
    with resume(resumer, turn_id) as stream:
        assert (stream.status, error_of(stream)["code"]) == (503, "newer_schema")
        assert int(stream.headers["retry-after"]) > 0
