"""Transactional tools: their staged writes, the outcome and `tool_end` in one transaction.

S3: the transaction creates the journal's next chunk, so it is fenced like every append (J2), and it
records the outcome, so the tool's writes take place exactly once, however often its body runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from functions import firestore, logs
from functions.errors import InvariantBroken, LeaseLost, StorageUnavailable
from functions.turns import journal, steps
from functions.turns.appender import Compose
from functions.turns.journal import Chunk
from functions.turns.record import Record
from functions.turns.steps import Step
from functions.turns.writer import Writer
from functions.wire.events import ToolEnd

if TYPE_CHECKING:
    from google.cloud.firestore import Transaction, WriteBatch

POLL_SECONDS = 0.1
"""How soon an owner that waits for the transaction notices a lost lease."""

Body = Callable[["Transaction"], tuple[str, Any]]
"""Calls the tool; the status and the result to record. Raises Firestore's errors."""
Finish = Callable[[str, Any], tuple[ToolEnd, Step]]
"""An outcome as its event and its record."""
Write = Callable[["WriteBatch", Sequence[Step], int], None]
"""Stages the records of steps; the last value is the id of their event."""

NO_THREAD = "the container had no thread left: the tool was not called"

_REFUSED = frozenset({"AlreadyExists", "FailedPrecondition", "NotFound", "PermissionDenied"})
"""Errors of a commit that say that the tool's own writes cannot be."""


class _Failed(Exception):
    """The tool ended with another outcome than `ok`: what it staged is rolled back."""

    def __init__(self, status: str, result: Any) -> None:
        super().__init__(status)
        self.outcome = (status, result)


def transact(
    turn: Record, writer: Writer, body: Body, finish: Finish, write: Write, *, seconds: float
) -> Step | tuple[str, Any]:
    """Run `body` until its transaction is known to be committed: the step as it is recorded.

    Runs it again when the transaction was aborted. Otherwise nothing was changed, and the outcome
    to record instead is returned: the tool's own failure, or a time-out after `seconds`. Raises
    LeaseLost, TurnFailed.
    """
    result: list[Step | tuple[str, Any]] = []

    def attempt(compose: Compose) -> Chunk | None:
        until = time.monotonic() + seconds
        pauses = firestore.backoff()
        invalid = False
        while time.monotonic() < until:
            writer.check()
            tried = _Try(turn, writer, body, finish, write, compose)
            tried.run(until)
            stored = tried.stored()
            if stored is not None:
                result.append(stored[1])
                return stored[0]
            if tried.outcome is None and tried.invalid and invalid:
                tried.outcome = _refused("InvalidArgument")
            if tried.outcome is not None:
                result.append(tried.outcome)
                return None
            invalid = tried.invalid
            time.sleep(next(pauses))
        message = f"no answer within {seconds:g} s: nothing was changed"
        result.append((steps.TIMEOUT, {"message": message}))
        return None

    writer.transact(attempt)
    return result[0]


class _Try:
    """One transaction."""

    def __init__(  # noqa: PLR0917 - what one transaction is made of
        self,
        turn: Record,
        writer: Writer,
        body: Body,
        finish: Finish,
        write: Write,
        compose: Compose,
    ) -> None:
        self._turn = turn
        self._writer = writer
        self._body = body
        self._finish = finish
        self._write = write
        self._compose = compose
        self._chunk: Chunk | None = None
        self._step: Step | None = None
        self._committed = False
        self.invalid = False
        """Whether it was answered as invalid: a transaction that is over, or writes that cannot be.
        The second time in a row it is the writes."""
        self._done = threading.Event()
        self._given_up = False
        self._composing = threading.Lock()
        """Held to make the chunk: it is the next one only until the owner goes on without it."""
        self.outcome: tuple[str, Any] | None = None
        """What to record when the transaction changed nothing and trying again is of no use."""

    def run(self, until: float) -> None:
        """Run it on a thread of its own, until it is through, `until`, or the lease is lost.

        A transaction that is given up may still commit, if it had its chunk by then: so either that
        is found there, or whatever is appended there instead makes it fail. One that has not come
        to the tool does not call it any more; one that is still in the tool gets no chunk.
        """
        fields = logs.fields()

        def work() -> None:
            logs.begin(fields)
            try:
                self._transact()
            finally:
                self._done.set()

        try:
            threading.Thread(target=work, name="transaction", daemon=True).start()
        except RuntimeError:
            logs.error("no thread could be had")
            self.outcome = steps.FAILED, {"message": NO_THREAD}
            return
        try:
            while not self._done.wait(POLL_SECONDS):
                self._writer.check()
                if time.monotonic() >= until:
                    return
        finally:
            with self._composing:
                self._given_up = True

    def stored(self) -> tuple[Chunk, Step] | None:
        """What the transaction stored, read back unless its answer was clear; None if nothing."""
        if self._chunk is None or self._step is None:
            return None
        if self._committed:
            return self._chunk, self._step
        try:
            chunk = journal.chunk_at(self._turn.key, self._chunk.index)
            step = steps.load(self._turn.key, self._step.position)
        except StorageUnavailable:
            return None
        if chunk is None or chunk.epoch > self._chunk.epoch:
            return None  # nothing yet, or another owner's: the next append will tell
        if chunk.nonce != self._chunk.nonce or step is None or not step.finished:
            raise InvariantBroken(f"S3: chunk {chunk.index} is there without its outcome")
        return chunk, step

    def _transact(self) -> None:
        from google.cloud.firestore import transactional

        transaction = firestore.client().transaction(max_attempts=1)
        try:
            transactional(self._stage)(transaction)
        except _Failed as failed:
            self.outcome = failed.outcome
        except BaseException as error:  # noqa: BLE001 - whatever it says, the read-back decides
            self._judge(error)
        else:
            self._committed = True

    def _stage(self, transaction: Transaction) -> None:
        self._writer.check()  # to begin a transaction may have taken long
        self._require_wanted()
        status, result = self._body(transaction)
        event, step = self._finish(status, result)
        if step.status != steps.OK:
            raise _Failed(step.status, event.result)
        with self._composing:
            self._require_wanted()
            chunk = self._compose(event)
        transaction.create(
            journal.document(self._turn.key, chunk.index), chunk.to_fields(self._turn.expire_at)
        )
        self._write(transaction, [step], chunk.last)
        self._chunk, self._step = chunk, step

    def _require_wanted(self) -> None:
        """Raise LeaseLost once nobody waits for this transaction any more."""
        if self._given_up:
            raise LeaseLost

    def _judge(self, error: BaseException) -> None:
        """Decide whether trying again can help. The SDK hides the cause of a failed commit or
        roll-back behind another error.
        """
        chain = [error, error.__cause__, error.__context__]
        names = {type(one).__name__ for one in chain if one is not None}
        for one in chain:
            if isinstance(one, _Failed):  # a roll-back that failed hid it
                self.outcome = one.outcome
                return
        logs.info("transaction not confirmed", cause=type(error).__name__)
        self.invalid = "InvalidArgument" in names
        refused = sorted(names & _REFUSED)
        if refused:
            self.outcome = _refused(refused[0])


def _refused(cause: str) -> tuple[str, Any]:
    return steps.FAILED, {"message": f"the tool's writes were refused: {cause}"}
