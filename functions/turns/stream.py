"""A turn as one caller's byte stream: replay from the cursor, then the live feed or the journal
of whoever owns the turn, with pings in every silence.

Whole frames only in every piece that is yielded (X1). No silence longer than the heartbeat (X2).
A clean end without a terminal event means: resume.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, repeat

from functions import firestore, logs
from functions.errors import Gone, NewerSchema, StorageUnavailable
from functions.settings import Settings
from functions.turns import journal, record
from functions.turns.durations import Durations
from functions.turns.feed import State
from functions.turns.journal import COMMIT_SECONDS, Chunk, Page, Piece
from functions.turns.numbering import continues
from functions.turns.owners import Owners
from functions.turns.writer import Writer
from functions.wire import sse

POLL_SECONDS = 0.1
"""A follower that expects a chunk looks for it so often …"""
POLL_SLOWEST_SECONDS = 1.0
"""… and in silence more and more rarely, but at least so often."""
TAKEOVER_SLOWEST_SECONDS = 2.0
"""A takeover that comes to nothing is tried again after 0.1 s, and more and more rarely."""
PATIENCE_SECONDS = 15.0
"""A stream ends, for the client to resume elsewhere, when storage or every takeover failed for so
long."""
END_MARGIN_SECONDS = 10.0
"""The stream ends so long before the platform would cut it."""


class _End(Exception):
    """The response ends here, at a frame boundary, without a terminal event."""


class _Patience:
    """Ends the stream when something went wrong each time for too long."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._since: float | None = None

    def succeeded(self) -> None:
        self._since = None

    def failed(self) -> None:
        """Raise _End when it has failed for `PATIENCE_SECONDS`."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > PATIENCE_SECONDS:
            raise _End(self._why)


class Stream:
    """One response. Iterate it once; what it yields is whole frames or a ping."""

    def __init__(
        self, key: str, cursor: int, replay: Page, owners: Owners, settings: Settings
    ) -> None:
        self._key = key
        self._cursor = cursor
        self._replay: Page | None = replay
        self._owners = owners
        self._heartbeat = settings.heartbeat_seconds
        self._seconds = settings.response_seconds - END_MARGIN_SECONDS
        self._ends_at = time.monotonic() + self._seconds
        self._next_index: int | None = None
        """Where a follower stands in the journal; None when it has to find out."""
        self._flush = settings.flush_seconds
        self._pauses = self._pauses_after_a_chunk()
        self._rested = False
        """Whether the last thing done was to pause: a chunk found then is the newest one."""
        self._newest = False
        """Whether the chunk given last was the newest: another one cannot be there yet."""
        self._silent = False
        """Whether the last look for a chunk found none: then the turn itself may be looked at."""
        self._look_at = 0.0
        """When to look next whether the turn is still owned."""
        self._takeovers = firestore.backoff(POLL_SECONDS, TAKEOVER_SLOWEST_SECONDS)
        self._over: str | None = None
        """The status of a turn that runs no more: what is not in the journal now never will be."""
        self._reading = _Patience("the journal was out of reach")
        self._looking = _Patience("the turn was out of reach")
        self._lapsed = _Patience("nobody could take the turn over")
        self._terminal = False
        self.lag = Durations()
        """How long after their commit chunks were found, while this stream follows."""
        self._log_fields = logs.fields()

    def count_from(self, arrived: float) -> None:
        """The request arrived at this monotonic instant: the platform's time for it runs since."""
        self._ends_at = arrived + self._seconds

    def __iter__(self) -> Iterator[bytes]:
        """Yield a ping at once, then the turn. Ends at a frame boundary, whatever happens."""
        logs.begin(self._log_fields)
        try:
            yield from self._pieces()
        except _End as end:
            logs.info("stream ended for the client to resume", why=str(end))
        except Exception:  # noqa: BLE001 - the edge: headers are out, so the client must resume
            logs.error("stream broke down")

    def _pieces(self) -> Iterator[bytes]:
        yield sse.PING
        sent_at = time.monotonic()
        while not self._terminal and time.monotonic() < self._ends_at:
            if self._owners.must_leave(self._key):
                raise _End("the container ends")
            silence = time.monotonic() - sent_at
            # A read of the journal may take a while: ping before it rather than too late.
            if silence >= self._heartbeat / 2 and self._may_block(silence):
                data = sse.PING
            else:
                data = self._next(self._heartbeat * 0.9 - silence)
            if data:
                yield data
                sent_at = time.monotonic()

    def _may_block(self, silence: float) -> bool:
        """Whether the next step could outlast the heartbeat."""
        return self._writer() is None or silence >= self._heartbeat * 0.9

    def _writer(self) -> Writer | None:
        return None if self._replay is not None else self._owners.writer(self._key)

    def _next(self, wait_seconds: float) -> bytes:
        """The next frames, or b"" if none came within about `wait_seconds`."""
        if self._replay is not None:
            return self._next_page(self._replay)
        writer = self._owners.writer(self._key)
        if writer is not None:
            read = writer.read(self._cursor, timeout_seconds=wait_seconds)
            if read.state is State.OPEN:
                self._cursor = read.cursor
                self._next_index = None
                self._terminal = sse.ends_turn(read.frames)
                self._lapsed.succeeded()
                return read.frames
            if read.state is State.ENDED:
                raise _End("the turn waits for a person, or was released")
            if read.state is State.BEHIND:
                self._replay = Page([], more=True)
                return b""
        return self._follow(min(wait_seconds, self._heartbeat * 0.45))

    def _next_page(self, replay: Page) -> bytes:
        """Give the page at hand; read the next one when there are more."""
        self._replay = None
        if not replay.chunks and replay.more:
            try:
                replay = journal.page(self._key, self._cursor, within_seconds=self._heartbeat / 2)
                self._reading.succeeded()
            except StorageUnavailable:
                self._replay = replay
                self._reading.failed()
                return b""
        if replay.more and replay.chunks:
            self._replay = Page([], more=True)
        given: list[bytes] = []
        for chunk in replay.chunks:
            if given and not continues(self._cursor, chunk.after):
                self._replay = Page([chunk], more=False)  # what came before the hole goes out first
                break
            given.append(self._give(chunk))
        return b"".join(given)

    def _give(self, chunk: Chunk | Piece) -> bytes:
        """The bytes of a chunk that the reader has not had; moves the cursor past it."""
        if not continues(self._cursor, chunk.after):
            raise _End("a part of the journal is gone")
        whole = chunk.first > self._cursor
        frames = chunk.frames if whole else sse.after(chunk.frames, self._cursor)
        self._cursor = max(self._cursor, chunk.last)
        self._next_index = chunk.index + 1
        if sse.waits(chunk.frames) or not chunk.frames:
            self._look_at = 0.0  # its status changed with this chunk, or its lease was released
        self._terminal = chunk.terminal
        self._lapsed.succeeded()
        return frames

    def _follow(self, wait_seconds: float) -> bytes:
        """The next chunk of a turn that another process owns, or b"" after a pause.

        One read each time, so that a slow one cannot use up another's time.
        """
        until = time.monotonic() + wait_seconds
        if self._newest:
            self._newest = False
            self._pause(until)
            return b""
        if self._silent and time.monotonic() >= self._look_at:
            self._silent = False
            self._look_at_turn(wait_seconds)
            return b""
        chunk = self._look_for_chunk(wait_seconds)
        if chunk is not None:
            self._pauses = self._pauses_after_a_chunk()
            self._newest, self._rested = self._rested, False
            return self._give(chunk)
        if self._over is not None and self._silent and self._replay is None:
            raise _End(f"the turn is {self._over}")
        self._pause(until)
        return b""

    def _pause(self, until: float) -> None:
        now = time.monotonic()
        time.sleep(max(0.02, min(next(self._pauses), until - now, self._look_at - now)))
        self._rested = True

    def _pauses_after_a_chunk(self) -> Iterator[float]:
        """Pauses between looks: the next chunk is due when the owner's next flush is."""
        soon = repeat(POLL_SECONDS, 10)
        later = firestore.backoff(POLL_SECONDS, POLL_SLOWEST_SECONDS)
        return chain([self._flush * 0.7], soon, later)

    def _look_for_chunk(self, within_seconds: float) -> Chunk | None:
        """The chunk at this follower's place in the journal, which it finds out first."""
        self._silent = False
        try:
            if self._next_index is None:
                tail = journal.tail(self._key, within_seconds=within_seconds)
                if tail is not None and tail.last > self._cursor:
                    self._replay = Page([], more=True)
                elif tail is not None:
                    self._next_index = tail.index + 1
                else:
                    self._next_index = 0
                    self._silent, self._look_at = True, 0.0  # new, or deleted (P2)
                return None
            found = journal.aged_chunk_at(
                self._key, self._next_index, within_seconds=within_seconds
            )
        except StorageUnavailable:
            self._reading.failed()
            # The journal may be slow and the lease lapsed all the same: look at the turn, too.
            self._silent = True
            return None
        self._reading.succeeded()
        self._silent = found is None
        if found is None:
            return None
        chunk, age = found
        self.lag.add(age)
        return chunk

    def _look_at_turn(self, within_seconds: float) -> None:
        """See whether the turn is still owned; take it over when it is not."""
        try:
            turn = record.load(self._key, within_seconds=within_seconds)
        except StorageUnavailable:
            self._looking.failed()
            return
        except NewerSchema as error:
            raise _End(error.code) from error
        self._looking.succeeded()
        now = time.monotonic()
        if turn is None or turn.gone:
            raise _End("the turn is past its retention, or was deleted")
        if turn.lapsed:
            self._lapsed.failed()
            self._owners.take_over(turn)
            self._look_at = now + next(self._takeovers)
        elif turn.status != record.RUNNING:
            # Its last chunk was committed with the status: one more look, and no more.
            self._over = turn.status
        else:
            self._lapsed.succeeded()
            self._takeovers = firestore.backoff(POLL_SECONDS, TAKEOVER_SLOWEST_SECONDS)
            self._look_at = now + turn.lapses_in + 0.05


def first_failure(writer: Writer, *, within_seconds: float) -> sse.Frame | None:
    """The turn's `error` event if it comes first of all and at once; None otherwise.

    An agent that failed at once is waited for until its failure is committed.
    """
    frames = writer.read(0, timeout_seconds=within_seconds).frames
    if not frames and writer.ends_silently:
        frames = writer.read(0, timeout_seconds=COMMIT_SECONDS).frames
    first = next(iter(sse.decode(frames)), None)
    return first if first is not None and first.type == "error" else None


def require_continuous(cursor: int, page: Page) -> None:
    """Raise Gone when what follows `cursor` is no longer all there."""
    if page.chunks and not continues(cursor, page.chunks[0].after):
        raise Gone("the part of the turn after this cursor is past its retention")
