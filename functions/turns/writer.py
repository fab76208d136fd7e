"""An owner's writing end: events are numbered, shown to local readers, and journaled in chunks.

- W1: only tokens are shown before their commit is known, and only inside the window (N2);
  everything else is shown after it, and tokens behind it wait.
- W2: one append at a time; nothing is sent past an answer that is not clear.
- W3: nothing is shown, appended or begun once the lease is lost.
- W4: memory is bounded: the agent waits when too much is uncommitted; of what is committed, the
  `feed` keeps a little for local readers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from functions import logs
from functions.errors import InvariantBroken, LeaseLost, TurnFailed
from functions.turns.appender import Also, Appender, Compose, Spare, nothing
from functions.turns.draft import Draft, Said
from functions.turns.feed import Feed, Read, State
from functions.turns.journal import AppendRefused, Chunk
from functions.turns.lease import Lease
from functions.turns.record import Record
from functions.wire import text
from functions.wire.events import Error, Event, Rewind, Token

TOKEN_CHARS = 4096
"""Longer text becomes several tokens, so no event is ever split."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the turn's text: after the event `to`, at a UTF-16 `length`."""

    to: int
    length: int


class Writer:
    """Writes one epoch of a turn. `begins` is the last chunk committed: the epoch chunk, or None
    in a new turn. Thread safe.
    """

    def __init__(
        self, turn: Record, lease: Lease, begins: Chunk | None, *, flush_seconds: float
    ) -> None:
        self._turn = turn
        self._lease = lease
        self._flush_seconds = flush_seconds
        self._changed = threading.Condition()
        self._appending = threading.RLock()
        self._work = threading.Event()
        self._urgent = threading.Event()
        self._joiner = text.SurrogateJoiner()
        # A session remembers what its turns told.
        keeps_text = turn.request.session_id is not None
        self._draft = Draft(begins, window=turn.window, keeps_text=keeps_text)
        self._appender = Appender(turn, lease, self._draft, begins)
        self.flushes = self._appender.flushes
        """How long each commit of this owner took until it was known to be applied."""
        self._feed = Feed(self._draft.confirmed, [] if begins is None else [begins.frames])
        self._barrier = False
        self._closed = False
        self._ended = False
        self._finishing = False
        self._calling = False
        """Whether tools run, whose outcomes a release waits for."""
        self._leaving = False
        """Whether no tool may be called any more: the lease is about to be released."""
        self._released = False
        self._failure: TurnFailed | None = None
        self._refused = False
        self._open: Mark | None = None
        """Where a model step began that has no outcome yet: its text may be withdrawn."""
        self._fields = logs.fields()
        self._flusher = threading.Thread(target=self._flush_loop, name="journal", daemon=True)
        lease.on_lost = self._wake

    def start(self) -> None:
        """Begin committing in the background, every `flush_seconds` while there is something."""
        self._flusher.start()

    def close(self) -> None:
        """Stop committing in the background. What is pending stays uncommitted."""
        with self._changed:
            self._closed = True
        self._wake()

    # Writing: called by the agent's thread.

    @property
    def failure(self) -> TurnFailed | None:
        """Why the turn can only end as an error, if that is so."""
        return self._failure

    @property
    def ends_silently(self) -> bool:
        """Whether the turn is ending, or has ended, with its terminal event as the first one."""
        return self._finishing and self._feed.empty

    def fail(self, failure: TurnFailed) -> TurnFailed:
        """Let the turn end with `failure`, whatever the agent does about it; returns it to raise.

        An agent may swallow the exception. It cannot go on.
        """
        with self._changed:
            self._failure = self._failure or failure
            return self._failure

    def check(self) -> None:
        """Raise LeaseLost or TurnFailed when nothing more may be begun (W3)."""
        with self._changed:
            self._check()

    def token(self, words: str) -> None:
        """Show `words` and have them committed within the flush time.

        Waits while the window or the bound on uncommitted bytes is reached. Raises LeaseLost,
        TurnFailed when the journal refused an earlier chunk, TypeError for anything but a `str`.
        """
        text.require(words)
        for piece in text.pieces(self._joiner.feed(words), TOKEN_CHARS):
            self._show(piece)

    @property
    def full(self) -> bool:
        """Whether a token would have to wait (W4)."""
        with self._changed:
            return self._barrier or not self._draft.has_room

    def mark(self) -> Mark:
        """The place where the next token will stand. Raises as `token` does.

        What follows it stays only if a step is finished after it, or the turn ends as it should.
        """
        self._flush_held()
        with self._changed:
            self._open = Mark(self._draft.next_id - 1, self._draft.length)
            return self._open

    def withdraw(self, mark: Mark) -> None:
        """Take back the text after `mark`, if there is any: commits a `rewind`, which clients see
        once that is known. A mark is of this epoch, and of no step before the last finished one.

        Raises as `token` does.
        """
        self._flush_held()
        if self._draft.length != mark.length:
            self._commit([Rewind(mark.to, mark.length)], nothing)

    def commit(
        self,
        events: Sequence[Event] = (),
        *,
        finishes_step: bool = False,
        also: Also = nothing,
    ) -> None:
        """Commit all that is pending, then `events`, then the writes of `also` (which is given
        the id of the last event), in order; the last chunk and `also` are one atomic commit.

        Returns when that is known to be applied; only then `events` are shown. With
        `finishes_step` a re-run begins here. Raises as `token` does.
        """
        self._flush_held()
        self._commit(events, also, finishes_step=finishes_step)
        if finishes_step:
            self._open = None

    @property
    def told(self) -> str:
        """The text of this epoch, or the start of it; empty for a turn without a session."""
        with self._changed:
            return self._draft.told

    def finish(
        self,
        event: Event,
        also: Also,
        spare: Spare | None = None,
    ) -> None:
        """Commit the terminal event, together with the writes of `also`, and those of `spare` if
        the documents they update are there; nothing follows it.

        After a failure only an `Error` can end the turn. Before an `Error` the text of a step that
        has no outcome is withdrawn (S4), and that of a chunk that the journal refused. Raises as
        `token` does.
        """
        self._finishing = True
        if self._failure is None:
            self._flush_held()
        with self._appending:
            withdrawn = []
            with self._changed:
                if not isinstance(event, Error):
                    self._check()
                self._failure = None
                told = self._feed.last if self._refused else self._draft.next_id - 1
                kept = Mark(told, self._draft.length)
                if self._refused:
                    self._refused = False
                    self._draft.forget(told)
                    kept = Mark(self._draft.confirmed, self._draft.length)
                if isinstance(event, Error) and self._open is not None:
                    kept = min(kept, self._open, key=lambda mark: mark.length)
                if kept.to != told:
                    withdrawn = [Rewind(kept.to, kept.length)]
            self._commit([*withdrawn, event], also, spare, ends=True)

    def park(self, events: Sequence[Event], also: Also) -> None:
        """Commit `events` and the writes of `also` as this owner's last: the turn waits now."""
        self._flush_held()
        self._commit(events, also, ends=True)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Tools are called inside, and their outcomes recorded: a release waits for that.

        Raises LeaseLost when no tool may be called any more, or TurnFailed.
        """
        with self._changed:
            self._check()
            while self._leaving:
                # Until the release is on its way: an owner that is through releases nothing.
                self._changed.wait(0.1)
                self._check()
            self._calling = True
        try:
            yield
        finally:
            with self._changed:
                self._calling = False
                self._changed.notify_all()

    def transact(self, body: Callable[[Compose], Chunk | None]) -> None:
        """Let `body` append one event by a transaction of its own, while everything else waits.

        `body` is given a function that makes the next chunk of an event, which finishes a step; it
        returns the chunk that is known to be stored, or None when none is. Raises as `token` does,
        and what `body` raises.
        """
        self._flush_held()
        with self._appending:
            with self._changed:
                self._check()
                self._barrier = True
            try:
                if not self._draft.empty:
                    self._append_draft()
                stored = body(self._appender.compose)
                if stored is not None:
                    self._appender.advance(stored)
                    self._draft.next_id = stored.last + 1
                    said = Said(stored.last, stored.frames, stored.length, shown=False)
                    self._confirm([said])
            except InvariantBroken:
                self._appender.lose("invariant broken")
            finally:
                with self._changed:
                    self._barrier = False
                    self._changed.notify_all()

    # Leaving: called by the thread that drains the container.

    def leave(self, *, within_seconds: float) -> None:
        """Let no tool be called any more, and wait until those that run have their outcomes."""
        with self._changed:
            self._leaving = True
            self._changed.wait_for(lambda: not self._calling or self._stopped(), within_seconds)

    def release(self, also: Also) -> None:
        """Commit what is pending, then the writes of `also` as this owner's last (L4).

        They ride on an empty chunk: followers look at the turn when they find one. Nothing is
        shown, appended or begun from before it is sent. Raises as `token` does.
        """
        with self._appending:
            with self._changed:
                self._check()
                self._released = True
            if not self._draft.empty:
                self._append_draft()
            self._append_draft(also=also)
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    # Reading: called by the threads of local readers.

    def read(self, cursor: int, *, timeout_seconds: float) -> Read:
        """The frames above `cursor`, waiting up to `timeout_seconds` for the first of them."""
        with self._changed:
            self._changed.wait_for(
                lambda: cursor < self._feed.last or self._stopped(), timeout_seconds
            )
            if self._stopped() and not self._ended:
                return Read(b"", cursor, State.LOST)
            read = self._feed.read(cursor)
            if self._ended and not read.frames and read.state is State.OPEN:
                return Read(b"", cursor, State.ENDED)
            return read

    # Inside.

    def _flush_held(self) -> None:
        held = self._joiner.flush()
        if held:
            self._show(held)

    def _stopped(self) -> bool:
        return self._ended or self._closed or self._lease.lost

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._work.set()
        self._urgent.set()

    def _check(self) -> None:
        """Raise what keeps the turn from going on: nothing follows its end, or a lost lease."""
        if self._failure is not None:
            raise self._failure
        if self._ended or self._closed or self._released:
            raise LeaseLost
        self._lease.remaining()

    def _show(self, piece: str) -> None:
        with self._changed:
            while self._barrier or not self._draft.has_room:
                self._check()
                self._changed.wait(0.1)
            self._check()
            self._feed.show(self._draft.add(Token(piece), shown=True))
            self._changed.notify_all()
            due = self._draft.due
        self._work.set()
        if due:
            self._urgent.set()

    def _commit(
        self,
        events: Sequence[Event],
        also: Also,
        spare: Spare | None = None,
        *,
        finishes_step: bool = False,
        ends: bool = False,
    ) -> None:
        with self._appending:
            with self._changed:
                self._check()
                self._draft.add_all(events)
                self._barrier = True
            try:
                self._append_draft(finishes_step=finishes_step, also=also, spare=spare)
                self._ended = ends
            finally:
                with self._changed:
                    self._barrier = False
                    self._changed.notify_all()

    def _flush_loop(self) -> None:
        with (
            logs.context(**self._fields),
            self._lease.lost_when_broken("the flush broke down"),
            suppress(LeaseLost, TurnFailed),
        ):
            while not self._stopped():
                self._work.wait()
                self._urgent.wait(self._flush_seconds)
                with self._appending:
                    with self._changed:
                        empty = self._draft.empty
                        if empty:
                            self._work.clear()
                    if not empty and not self._stopped():
                        self._append_draft()

    def _append_draft(
        self, *, finishes_step: bool = False, also: Also = nothing, spare: Spare | None = None
    ) -> None:
        """Append what is pending now, the last part of it together with the other writes."""
        with self._changed:
            parts = self._draft.take()
            self._work.clear()
            self._urgent.clear()
        for part in parts[:-1]:
            self._append(part)
        self._append(parts[-1], finishes_step=finishes_step, also=also, spare=spare)

    def _append(
        self,
        part: list[Said],
        *,
        finishes_step: bool = False,
        also: Also = nothing,
        spare: Spare | None = None,
    ) -> None:
        try:
            self._appender.append(part, finishes_step=finishes_step, also=also, spare=spare)
        except AppendRefused as error:
            self._refused = True
            refused = TurnFailed("journal_refused", "the journal refused a part of the turn")
            raise self.fail(refused) from error
        self._confirm(part)

    def _confirm(self, part: list[Said]) -> None:
        """`part` is committed: show what waited for that, and drop what is no longer needed."""
        with self._changed:
            self._draft.confirm(part)
            for item in part:
                if not item.shown:
                    self._feed.show(item.frame)
            self._feed.trim(self._draft.confirmed)
            self._changed.notify_all()
