"""The writer, with readers and an agent in this process (W1 to W4)."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from functions.errors import LeaseLost
from functions.turns import journal, record
from functions.turns.feed import FEED_BYTES, State
from functions.turns.journal import Chunk
from functions.turns.takeover import Taken
from functions.turns.writer import Writer
from functions.wire import sse
from functions.wire.events import Done, Rewind, ToolStart
from tests.support.firestore_proxy import FirestoreProxy, Hold, touches
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import LONGEST_LEASE, Create

EVENTS = touches(r"agent_turns/[^/]+/agent_turn_events/\d+$")
pytestmark = pytest.mark.emulator


def writer_of(taken: Taken) -> Writer:
    """A writer that flushes every 50 ms."""
    writer = Writer(taken.turn, taken.lease, taken.begins, flush_seconds=0.05)
    writer.start()
    return writer


@pytest.fixture
def taken(storage: None, create: Create) -> Taken:
    """A turn of this process, with a lease that lasts the test."""
    assert storage is None
    return create(lease_seconds=LONGEST_LEASE)


def read_all(writer: Writer, cursor: int = 0) -> bytes:
    """All frames until the turn has ended."""
    frames = b""
    while not sse.ends_turn(frames):
        read = writer.read(cursor, timeout_seconds=PATIENCE_SECONDS)
        assert read.state is State.OPEN
        assert read.frames, "nothing came"
        frames += read.frames
        cursor = read.cursor
    return frames


def stored(taken: Taken) -> bytes:
    """The bytes of the whole journal."""
    frames, cursor = b"", 0
    while True:
        page = journal.page(taken.turn.key, cursor)
        frames += b"".join(chunk.frames for chunk in page.chunks)
        if not page.more:
            return frames
        cursor = page.chunks[-1].last


def finish(taken: Taken, writer: Writer) -> None:
    """End the turn well."""
    turn = record.reference(taken.turn.key)
    writer.finish(Done("stop"), also=lambda batch, _last: batch.update(turn, {"status": "done"}))
    writer.close()


def test_what_is_shown_is_what_is_journaled(taken: Taken) -> None:
    """Tokens as fast as they go beside a flusher that is always at work: the same bytes, once."""
    writer = writer_of(taken)
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.append(read_all(writer)))
    reader.start()
    for number in range(4000):
        writer.token(f"{number} ")
        if number % 500 == 0:
            writer.commit(finishes_step=True)
    finish(taken, writer)
    reader.join()
    assert shown[0] == stored(taken)
    ids = [frame.id for frame in sse.decode(shown[0])]
    assert ids == list(range(1, 4002))


def test_only_tokens_are_shown_before_their_commit(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """Anything else waits for it, and tokens behind it wait, too (W1)."""
    taken = create(lease_seconds=LONGEST_LEASE)
    writer = writer_of(taken)
    writer.token("before")
    writer.commit()
    go = threading.Event()
    rule = faulty_storage.inject("Commit", Hold(go), when=EVENTS)
    committer = threading.Thread(target=lambda: writer.commit([ToolStart(1, "pay", {})]))
    committer.start()
    rule.wait(1)
    behind = threading.Thread(target=lambda: writer.token("behind"))
    behind.start()
    assert writer.read(1, timeout_seconds=0.3).frames == b""
    go.set()
    committer.join()
    behind.join()
    kinds = [frame.type for frame in sse.decode(writer.read(0, timeout_seconds=1).frames)]
    assert kinds == ["token", "tool_start", "token"]
    finish(taken, writer)


def test_a_reader_far_behind_is_sent_to_the_journal(taken: Taken) -> None:
    """Committed frames are kept up to a bound, and no further (W4)."""
    writer = writer_of(taken)
    for _ in range(60):
        writer.token("x" * 4000 * 4)
    writer.commit()
    assert writer.read(0, timeout_seconds=1).state is State.BEHIND
    kept = sum(len(frame) for frame in writer._feed._frames)
    assert kept <= FEED_BYTES + 70_000
    finish(taken, writer)


@pytest.mark.parametrize("how", ["ended", "lost"])
def test_nothing_follows_the_end_or_a_lost_lease(taken: Taken, how: str) -> None:
    """Not even from a thread that an agent left behind (W3)."""
    writer = writer_of(taken)
    writer.token("a")
    if how == "ended":
        finish(taken, writer)
    else:
        writer.commit()
        taken.lease.lose("a test says so")
    before = stored(taken)
    with pytest.raises(LeaseLost):
        writer.token("b")
    with pytest.raises(LeaseLost):
        writer.commit([Rewind(0, 0)])
    with pytest.raises(LeaseLost):
        finish(taken, writer)
    time.sleep(0.2)
    assert stored(taken) == before
    expected = State.OPEN if how == "ended" else State.LOST
    assert writer.read(0, timeout_seconds=0).state is expected


def test_an_agent_waits_when_the_window_is_used_up(
    faulty_storage: FirestoreProxy, create: Create
) -> None:
    """No id above the last confirmed one plus W is ever shown (N2)."""
    taken = create(lease_seconds=LONGEST_LEASE)
    object.__setattr__(taken.turn, "window", 10)
    writer = writer_of(taken)
    go = threading.Event()
    rule = faulty_storage.inject("Commit", Hold(go), when=EVENTS)

    def shown() -> list[int]:
        return [frame.id for frame in sse.decode(writer.read(0, timeout_seconds=0).frames)]

    def speak() -> None:
        for _ in range(25):
            writer.token("x")

    agent = threading.Thread(target=speak)
    agent.start()
    rule.wait(1)
    wait_until(lambda: len(shown()) >= 10)
    time.sleep(0.3)
    assert shown() == list(range(1, 11))
    go.set()
    agent.join()
    finish(taken, writer)
    ids = [frame.id for frame in sse.decode(stored(taken))]
    assert ids == list(range(1, 27))


def test_readers_at_every_cursor_get_the_rest(taken: Taken) -> None:
    """From the live feed, while it is written."""
    writer = writer_of(taken)
    results: dict[int, bytes] = {}

    def follow(cursor: int) -> None:
        results[cursor] = read_all(writer, cursor)

    readers = [threading.Thread(target=follow, args=(cursor,)) for cursor in range(0, 50, 5)]
    for number in range(50):
        writer.token(f"{number} ")
    for reader in readers:
        reader.start()
    for number in range(50, 300):
        writer.token(f"{number} ")
    finish(taken, writer)
    for reader in readers:
        reader.join()
    whole = stored(taken)
    assert results == {cursor: sse.after(whole, cursor) for cursor in range(0, 50, 5)}


def test_chunks_are_dense_and_follow_each_other(taken: Taken) -> None:
    """Also the empty ones, which only carry a boundary (J1, J4)."""
    writer = writer_of(taken)
    for number in range(5):
        writer.commit(finishes_step=True)
        writer.token(f"{number}")
        writer.commit(finishes_step=True)
    finish(taken, writer)
    documents = list(journal.events(taken.turn.key).order_by("__name__").stream())
    chunks = [Chunk.from_fields(document.to_dict() or {}) for document in documents]
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    for earlier, later in itertools.pairwise(chunks):
        assert later.after == earlier.last
        assert later.boundary.steps >= earlier.boundary.steps
    assert any(chunk.frames == b"" for chunk in chunks)
    assert chunks[-1].boundary.steps == 10
