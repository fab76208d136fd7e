"""Running tool steps: start committed, lease checked, tool called, outcome recorded; once.

The agent's thread alone commits. Tools of one response run side by side on threads of their own;
what a tool returns after its time, or after the lease is lost, is not written.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from functions import logs
from functions.errors import TurnFailed
from functions.turns import steps
from functions.turns.record import Record
from functions.turns.steps import Move, Step
from functions.turns.tools import BadArguments, Call, Happened, Policy, Tool, ToolError
from functions.turns.writer import Writer
from functions.wire.events import ToolEnd, ToolStart

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch

POLL_SECONDS = 0.1
"""How soon an owner that waits for its tools notices a lost lease."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a tool call: the same live and in a re-run."""

    status: str
    """One of `ok error timeout in_doubt`."""
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

    def call_all(self, first: int, calls: Sequence[tuple[Tool, dict[str, Any]]]) -> list[Outcome]:
        """Run the calls of one response at the positions from `first` on; their outcomes in order.

        Raises TurnFailed when a re-run asks for something else, LeaseLost.
        """
        planned = [self._plan(first + n, tool, args) for n, (tool, args) in enumerate(calls)]
        outcomes: dict[int, Outcome] = {}
        for one in planned:
            if one.move is Move.REPLAY:
                outcomes[one.step.position] = _outcome(one.step)
            elif one.move is Move.DOUBT:
                outcomes[one.step.position] = self._settle(one)
        outcomes |= self._run([one for one in planned if one.move is Move.RUN])
        return [outcomes[one.step.position] for one in planned]

    def _plan(self, position: int, tool: Tool, args: dict[str, Any]) -> _Planned:
        try:
            args_hash = steps.hash_of(args)
        except (TypeError, ValueError):
            raise TurnFailed(
                "bad_step_arguments",
                f"step {position} ({tool.name}) has arguments that are no JSON",
            ) from None
        recorded = self._recorded.get(position)
        if recorded is not None:
            steps.require_same(recorded, tool.name, args_hash)
        try:
            checked: dict[str, Any] | BadArguments = tool.check(args)
        except BadArguments as error:
            checked = error
        move = steps.next_move(recorded, tool.policy)
        step = recorded or Step(position, "tool", tool.name, args_hash, steps.STARTED, attempt=0)
        return _Planned(tool, args, checked, step, move)

    def _settle(self, one: _Planned) -> Outcome:
        """Record what is known of a call that a dead owner began: never call again."""
        happened = self._reconcile(one)
        if happened is not None:
            return self._record(one, steps.OK, happened.result)
        message = "the container died while this ran: nobody can know whether it took effect"
        return self._record(one, steps.IN_DOUBT, {"message": message})

    def _reconcile(self, one: _Planned) -> Happened | None:
        if one.tool.reconcile is None or isinstance(one.checked, BadArguments):
            return None
        try:
            return one.tool.reconcile(self._call(one), **one.checked)
        except Exception:  # noqa: BLE001 - then it does not know
            logs.error("reconcile failed", step=one.step.position, name=one.tool.name)
            return None

    def _run(self, planned: list[_Planned]) -> dict[int, Outcome]:
        """Commit the starts, check the lease, call the tools, record what comes of them."""
        if not planned:
            return {}
        started = [
            replace(
                one,
                step=replace(one.step, status=steps.STARTED, attempt=one.step.attempt + 1),
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
        for one in started:
            position = one.step.position
            if isinstance(one.checked, BadArguments):
                outcomes[position] = self._record(one, steps.FAILED, {"message": str(one.checked)})
            else:
                self._writer.check()
                open_calls[position] = (one, time.monotonic() + one.tool.timeout_seconds)
                self._launch(one, done)
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
        fields = logs.fields()

        def work() -> None:
            logs.begin(fields)
            done.put((one.step.position, *self._attempt(one, self._call(one))))

        threading.Thread(target=work, name=f"tool-{one.tool.name}", daemon=True).start()

    def _attempt(self, one: _Planned, call: Call) -> tuple[str, Any]:
        """Call the tool; the status and result to record."""
        assert not isinstance(one.checked, BadArguments)
        try:
            return steps.OK, one.tool.run(call, **one.checked)
        except ToolError as error:
            return steps.FAILED, {"message": str(error)}
        except BaseException as error:  # noqa: BLE001 - an outcome like any other
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

    def _record(self, one: _Planned, status: str, result: Any) -> Outcome:
        """Record a step's one outcome, together with its `tool_end`."""
        position = one.step.position
        status, text = _safe(position, status, result)
        step = replace(one.step, status=status, result=text)
        event = ToolEnd(position, one.tool.name, status, json.loads(text))  # type: ignore[arg-type]
        self._writer.commit(
            [event],
            finishes_step=True,
            also=lambda batch, last: self._write_all(batch, [step], last),
        )
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


def _safe(position: int, status: str, result: Any) -> tuple[str, str]:
    """The outcome as JSON text; a result that JSON cannot carry becomes an error that says so."""
    try:
        return status, steps.to_json(position, result)
    except TurnFailed as error:
        return steps.FAILED, json.dumps({"message": f"{error.message}; its effect stays"})


def _outcome(step: Step) -> Outcome:
    return Outcome(step.status, json.loads(step.result))
