"""Running tool steps: start committed, lease checked, tool called, outcome recorded; once.

The agent's thread alone commits. Tools of one response run side by side on threads of their own;
what a tool returns after its time, or after the lease is lost, is not written.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from functions import firestore, logs
from functions.errors import TurnFailed
from functions.turns import record, steps
from functions.turns.record import Record
from functions.turns.steps import Move, Step
from functions.turns.tools import BadArguments, Call, Happened, Policy, Tool, ToolError
from functions.turns.transact import NO_THREAD, transact
from functions.turns.writer import Writer
from functions.wire import values
from functions.wire.events import ToolEnd, ToolPending, ToolStart

if TYPE_CHECKING:
    from google.cloud.firestore import Transaction, WriteBatch

MAX_ARGS_BYTES = 256 * 1024
"""The largest JSON of a call's arguments: `tool_start` carries them in one event."""

POLL_SECONDS = 0.1
"""How soon an owner that waits for its tools notices a lost lease."""


class Parked(BaseException):
    """The turn waits for a person: the agent ends here, and is run again after the decision."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a tool call: the same live and in a re-run."""

    status: str
    """One of `ok error denied expired timeout in_doubt`."""
    result: Any
    """The tool's result, or `{"message": …}` for the model."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A call at its position, and what is to be done with it."""

    tool: Tool
    args: dict[str, Any]
    checked: dict[str, Any] | BadArguments
    step: Step
    move: Move


class Ledger:
    """The tool steps of one epoch of a turn."""

    def __init__(self, turn: Record, writer: Writer, recorded: Mapping[int, Step]) -> None:
        self._turn = turn
        self._writer = writer
        self._recorded = recorded
        self._began = time.monotonic()

    def call_all(self, first: int, calls: Sequence[tuple[Tool, dict[str, Any]]]) -> list[Outcome]:
        """Run the calls of one response at the positions from `first` on; their outcomes in order.

        Those that need no approval run first, side by side. If others wait for a person then,
        raises Parked. Raises TurnFailed when a re-run asks for something else, LeaseLost.
        """
        planned = [self._plan(first + n, tool, args) for n, (tool, args) in enumerate(calls)]
        outcomes: dict[int, Outcome] = {}
        for one in planned:
            if one.move is Move.REPLAY:
                outcomes[one.step.position] = _outcome(one.step)
            elif one.move in {Move.DENY, Move.EXPIRE, Move.DOUBT}:
                outcomes[one.step.position] = self._settle(one)
        outcomes |= self._run([one for one in planned if one.move is Move.RUN])
        waiting = [one for one in planned if one.move is Move.WAIT]
        if waiting:
            self._park(waiting)
        return [outcomes[one.step.position] for one in planned]

    def _plan(self, position: int, tool: Tool, args: dict[str, Any]) -> _Planned:
        try:
            text = values.to_json(args)
        except (TypeError, ValueError):
            raise TurnFailed(
                "bad_step_arguments",
                f"step {position} ({tool.name}) has arguments that are no JSON",
            ) from None
        if len(text) > MAX_ARGS_BYTES:
            raise TurnFailed(
                "bad_step_arguments",
                f"step {position} ({tool.name}) has more than {MAX_ARGS_BYTES} bytes of arguments",
            )
        args = json.loads(text)  # the call's own: what a tool does to them is no one else's matter
        args_hash = steps.hash_of(args)
        recorded = self._recorded.get(position)
        if recorded is not None:
            steps.require_same(recorded, "tool", tool.name, args_hash)
        try:
            checked: dict[str, Any] | BadArguments = tool.check(args)
        except BadArguments as error:
            checked = error
            if error.__cause__ is not None:
                cause = type(error.__cause__).__qualname__
                logs.error("arguments were not checked", step=position, name=tool.name, cause=cause)
        needs_approval = tool.approval_seconds is not None and not isinstance(checked, BadArguments)
        move = steps.next_move(
            recorded, tool.policy, needs_approval=needs_approval, now=self._now()
        )
        if recorded is None and move is Move.RUN and position < max(self._recorded, default=0):
            # The calls of a response are begun in one commit: this one was, too.
            raise TurnFailed("gone", f"step {position} of the turn is past its retention")
        step = recorded or Step(position, "tool", tool.name, args_hash, steps.STARTED, attempt=0)
        return _Planned(tool, args, checked, step, move)

    def _now(self) -> datetime:
        """The server's time: as it was when the lease was taken, and what has passed since."""
        return self._turn.read_at + timedelta(seconds=time.monotonic() - self._began)

    def _settle(self, one: _Planned) -> Outcome:
        """Record what is known of a call that is not to be made."""
        if one.move is Move.DENY:
            return self._record(one, steps.DENIED, {"message": "a person denied this call"})
        if one.move is Move.EXPIRE:
            return self._record(one, steps.EXPIRED, {"message": "nobody approved it in time"})
        happened = self._reconcile(one)
        if happened is not None:
            return self._record(one, steps.OK, happened.result)
        message = "the container died while this ran: nobody can know whether it took effect"
        return self._record(one, steps.IN_DOUBT, {"message": message})

    def _reconcile(self, one: _Planned) -> Happened | None:
        """What `reconcile` knows; None when it does not, fails, or takes longer than its tool may.

        Raises LeaseLost, TurnFailed.
        """
        if one.tool.reconcile is None or isinstance(one.checked, BadArguments):
            return None
        answers: queue.Queue[Happened | None] = queue.Queue()
        if not self._beside(one, lambda: answers.put(self._ask(one))):
            return None
        until = time.monotonic() + one.tool.timeout_seconds
        while time.monotonic() < until:
            self._writer.check()
            with suppress(queue.Empty):
                return answers.get(timeout=POLL_SECONDS)
        logs.warning("reconcile gave no answer", step=one.step.position, name=one.tool.name)
        return None

    def _ask(self, one: _Planned) -> Happened | None:
        """Ask the tool's `reconcile`. What it may not answer, or raises, is no knowledge."""
        assert one.tool.reconcile is not None
        assert not isinstance(one.checked, BadArguments)
        try:
            answer = one.tool.reconcile(self._call(one), **one.checked)
            if answer is None or isinstance(answer, Happened):
                return answer
            raise TypeError(f"reconcile answered {type(answer).__name__}, not Happened or None")
        except BaseException:  # noqa: BLE001 - the thread's edge
            logs.error("reconcile failed", step=one.step.position, name=one.tool.name)
            return None

    def _run(self, planned: list[_Planned]) -> dict[int, Outcome]:
        """Commit the starts, check the lease, call the tools, record what comes of them."""
        if not planned:
            return {}
        with self._writer.calling():
            return self._call_tools(planned)

    def _call_tools(self, planned: list[_Planned]) -> dict[int, Outcome]:
        started = [
            replace(
                one,
                step=replace(
                    one.step,
                    status=steps.STARTED,
                    attempt=one.step.attempt + 1,
                    policy=one.tool.policy.value,
                ),
            )
            for one in planned
        ]
        self._writer.commit(
            [ToolStart(one.step.position, one.tool.name, one.args) for one in started],
            also=lambda batch, last: self._write_all(batch, [one.step for one in started], last),
        )
        outcomes: dict[int, Outcome] = {}
        done: queue.Queue[tuple[int, str, Any]] = queue.Queue()
        open_calls: dict[int, tuple[_Planned, float]] = {}
        inline: list[_Planned] = []
        for one in started:
            position = one.step.position
            if isinstance(one.checked, BadArguments):
                outcomes[position] = self._record(one, steps.FAILED, {"message": str(one.checked)})
            elif one.tool.policy is Policy.TRANSACTIONAL:
                inline.append(one)
            else:
                self._writer.check()
                open_calls[position] = (one, time.monotonic() + one.tool.timeout_seconds)
                self._launch(one, done)
        for one in inline:
            outcomes[one.step.position] = self._transact(one)
        while open_calls:
            self._writer.check()
            try:
                position, status, result = done.get(timeout=POLL_SECONDS)
            except queue.Empty:
                outcomes |= self._time_out(open_calls)
                continue
            if position in open_calls:
                one, _deadline = open_calls.pop(position)
                outcomes[position] = self._record(one, status, result)
            else:
                logs.warning("a late result was refused", step=position)
        return outcomes

    def _launch(self, one: _Planned, done: queue.Queue[tuple[int, str, Any]]) -> None:
        def work() -> None:
            done.put((one.step.position, *self._attempt(one, self._call(one))))

        if not self._beside(one, work):
            done.put((one.step.position, steps.FAILED, {"message": NO_THREAD}))

    def _beside(self, one: _Planned, work: Callable[[], None]) -> bool:
        """Do the tool's `work` on a thread of its own; False when none can be had."""
        fields = logs.fields()

        def run() -> None:
            logs.begin(fields)
            work()

        try:
            threading.Thread(target=run, name=f"tool-{one.tool.name}", daemon=True).start()
        except RuntimeError:
            logs.error("no thread could be had", step=one.step.position, name=one.tool.name)
            return False
        return True

    def _attempt(self, one: _Planned, call: Call) -> tuple[str, Any]:
        """Call the tool; the status and result to record."""
        assert not isinstance(one.checked, BadArguments)
        try:
            try:
                return steps.OK, one.tool.run(call, **one.checked)
            except ToolError as error:
                return steps.FAILED, {"message": str(error)}  # which may be the tool's code, too
        except BaseException as error:
            if call.transaction is not None and firestore.is_its_error(error):
                raise  # not the tool's fault: the transaction is tried again
            logs.error("tool failed", step=one.step.position, name=one.tool.name)
            return steps.FAILED, {"message": f"the tool failed: {type(error).__name__}"}

    def _time_out(self, open_calls: dict[int, tuple[_Planned, float]]) -> dict[int, Outcome]:
        now = time.monotonic()
        outcomes: dict[int, Outcome] = {}
        for position, (one, deadline) in list(open_calls.items()):
            if now >= deadline:
                del open_calls[position]
                once = one.tool.policy is Policy.ONCE
                status = steps.IN_DOUBT if once else steps.TIMEOUT
                message = f"no answer within {one.tool.timeout_seconds:g} s"
                outcomes[position] = self._record(one, status, {"message": message})
        return outcomes

    def _transact(self, one: _Planned) -> Outcome:
        """Run a transactional tool: its staged writes, the outcome and `tool_end` are one."""

        def body(transaction: Transaction) -> tuple[str, Any]:
            return self._attempt(one, replace(self._call(one), transaction=transaction))

        def finish(status: str, result: Any) -> tuple[ToolEnd, Step]:
            return self._ending(one, status, result)

        outcome = transact(
            self._turn,
            self._writer,
            body,
            finish,
            self._write_all,
            seconds=one.tool.timeout_seconds,
        )
        if isinstance(outcome, Step):
            return _outcome(outcome)
        return self._record(one, *outcome)

    def _ending(self, one: _Planned, status: str, result: Any) -> tuple[ToolEnd, Step]:
        """An outcome as its event and as the step's record."""
        position = one.step.position
        undone = one.tool.policy is Policy.TRANSACTIONAL
        status, text = _safe(position, status, result, undone=undone)
        event = ToolEnd(position, one.tool.name, status, json.loads(text))  # type: ignore[arg-type]
        return event, replace(one.step, status=status, result=text)

    def _park(self, waiting: list[_Planned]) -> None:
        """Ask for the decisions, release the lease and end, as one commit. Raises Parked."""
        asked = []
        now = self._now()
        for one in waiting:
            # Nobody can decide a turn that is gone: what a person is told must be true.
            left = (self._turn.expire_at - now).total_seconds()
            seconds = min(one.tool.approval_seconds or 0.0, left)
            decide_by = one.step.decide_by or now + timedelta(seconds=seconds)
            asked.append(replace(one.step, status=steps.WAITING, decide_by=decide_by))
        until = min(step.decide_by for step in asked if step.decide_by is not None)

        def also(batch: WriteBatch, last: int) -> None:
            self._write_all(batch, asked, last)
            fields = {"status": record.WAITING, "waitingUntil": until}
            batch.update(record.reference(self._turn.key), fields)

        events = [
            ToolPending(step.position, step.name, one.args, _rfc3339(step.decide_by or until))
            for one, step in zip(waiting, asked, strict=True)
        ]
        self._writer.park(events, also)
        raise Parked

    def _record(self, one: _Planned, status: str, result: Any) -> Outcome:
        """Record a step's one outcome, together with its `tool_end`."""
        event, step = self._ending(one, status, result)
        self._writer.commit(
            [event],
            finishes_step=True,
            also=lambda batch, last: self._write_all(batch, [step], last),
        )
        if step.status == steps.IN_DOUBT:
            logs.warning("step in doubt", step=step.position, name=step.name)
        return _outcome(step)

    def _call(self, one: _Planned) -> Call:
        position = one.step.position
        return Call(position, steps.idempotency_key(self._turn.run_id, position))

    def _write_all(self, batch: WriteBatch, written: Sequence[Step], last: int) -> None:
        for step in written:
            fields = step.to_fields(
                run_id=self._turn.run_id,
                last=last,
                epoch=self._turn.holder.epoch,
                expire_at=self._turn.expire_at,
            )
            batch.set(steps.document(self._turn.key, step.position), fields)


def _safe(position: int, status: str, result: Any, *, undone: bool) -> tuple[str, str]:
    """The outcome as JSON text; a result that JSON cannot carry becomes an error that says so, and
    what became of the call's effect: with `undone`, its transaction is rolled back.
    """
    try:
        return status, steps.to_json(position, result)
    except TurnFailed as error:
        effect = "nothing was changed" if undone else "its effect stays"
        return steps.FAILED, json.dumps({"message": f"{error.message}; {effect}"})


def _outcome(step: Step) -> Outcome:
    return Outcome(step.status, json.loads(step.result))


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
