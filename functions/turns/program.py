"""The agent's side of a turn: a program that can be run again from the top.

An agent is a callable that is given a `Turn`. When a container dies, another one runs the agent
again: steps that were finished return their recorded outcome without running, and text that was
already told is not told twice. What lies outside steps must come out the same every time.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from functions.errors import TurnFailed
from functions.turns import history, steps
from functions.turns.asking import (
    Asking,
    ModelFailed,
    ModelUnavailable,
    StepFailed,
    require_recordable,
)
from functions.turns.budget import Budget, Spent, require_time
from functions.turns.ledger import Ledger, Outcome
from functions.turns.membership import Membership
from functions.turns.record import Record
from functions.turns.steps import Step
from functions.turns.tools import Tool
from functions.turns.writer import Writer
from functions.wire.events import Done, DoneReason
from functions.wire.text import require

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch

__all__ = [
    "Agent",
    "Asking",
    "Budget",
    "Emit",
    "ModelFailed",
    "ModelUnavailable",
    "Outcome",
    "StepFailed",
    "Turn",
]

T = TypeVar("T")
Emit = Callable[[str], None]

CHECK_SECONDS = 0.5
"""How soon an owner notices, in the midst of a silent model call, that its lease is lost."""
_POLL_SECONDS = 0.1
"""How soon a pause between two attempts notices it."""


@dataclass(frozen=True, slots=True)
class Agent:
    """What `main` serves. Change `version` when a turn that is under way could not be run again
    by the new code; name older versions that it still can in `accepts`.
    """

    run: Callable[[Turn], None]
    version: str = "1"
    accepts: frozenset[str] = frozenset()
    budget: Budget = field(default_factory=Budget)
    """What one turn may use up; over it, the turn ends with `budget_exceeded`."""

    def __post_init__(self) -> None:
        """Refuse what would run no turn, or the wrong ones."""
        run, version, accepts = cast("tuple[Any, ...]", (self.run, self.version, self.accepts))
        if inspect.iscoroutinefunction(run) or inspect.isasyncgenfunction(run):
            raise TypeError("an agent's `run` is no async function: call asyncio.run inside it")
        if inspect.isgeneratorfunction(run):
            raise TypeError("an agent's `run` yields nothing: it says its text by `turn.token`")
        if not callable(run):
            raise TypeError(f"an agent's `run` is a function of a Turn, not {run!r}")
        if not isinstance(version, str) or isinstance(accepts, str):
            raise TypeError("an agent's `version` is a str, and `accepts` a set of them")

    def play(self, turn: Turn) -> None:
        """Run it to its end. Raises TypeError, and what it raises."""
        returned: Any = self.run(turn)  # type: ignore[func-returns-value]  # so it is declared
        if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
            returned.close()  # nothing of it has run: the turn would end well, without a word
            raise TypeError(f"an agent's `run` returned {type(returned).__name__}, and ran nothing")

    def can_continue(self, version: str) -> bool:
        """Whether a turn begun under `version` may be run again by this agent."""
        return version == self.version or version in self.accepts


class Turn:
    """One turn, as its agent sees it. Not thread safe: one agent, one thread."""

    def __init__(
        self,
        turn: Record,
        writer: Writer,
        begun: Mapping[int, Step],
        budget: Budget = Budget(),  # noqa: B008 - a frozen value
        membership: Membership | None = None,
    ) -> None:
        self._turn = turn
        self._membership = membership
        self._writer = writer
        self._begun = begun
        self._ledger = Ledger(turn, writer, begun)
        self._position = 0
        self._told = max((step.position for step in begun.values() if step.finished), default=0)
        """The last finished step: all text before its end is in the journal already."""
        self._inside: str | None = None
        self._asks = False
        """Whether a model step is open."""
        self._budget = budget
        self._spent = Spent()
        self._began = time.monotonic() - turn.owned_seconds
        self.conclusion = Done("stop")
        """The event that the turn ends with if its agent returns."""

    @property
    def id(self) -> str:
        """The turn's id, chosen by the client."""
        return self._turn.turn_id

    @property
    def run_id(self) -> str:
        """A random name of this run; `run_id:step` is a step's idempotency key."""
        return self._turn.run_id

    @property
    def prompt(self) -> str:
        """What the user asked."""
        return self._turn.request.prompt

    @property
    def session_id(self) -> str | None:
        """The session the turn belongs to, if the client named one."""
        return self._turn.request.session_id

    @property
    def history(self) -> list[Any]:
        """The messages (JSON values) of the session's earlier turns, oldest first: what each of
        them remembered. The same in every run of the turn; a list of its own each time.
        """
        return [] if self._membership is None else self._membership.history

    def remember(self, messages: Sequence[Any]) -> None:
        """Say what this turn adds to its session: a list of JSON values, in a form of your choice.

        Committed together with the turn's end; the last call holds. Without a call, a turn that
        ends as it should adds what was asked and what was answered,
        `{"role": "user" | "assistant", "content": string}`. A turn that is cancelled adds nothing;
        one that fails, only what was remembered here. Without a session this does nothing.

        Raises ValueError or TypeError for what JSON cannot carry.
        """
        remembered = history.encode(messages)
        if self._membership is not None:
            self._membership.remember(remembered)

    @property
    def started_at(self) -> datetime:
        """When the turn was created, by the server's clock: the same in every run of it."""
        return self._turn.created_at

    def check(self) -> None:
        """Raise LeaseLost when another container has the turn, TurnFailed when it cannot go on: in
        the midst of a model step also when its time is over.

        For an agent that waits for something that is neither a token nor a step.
        """
        self._writer.check()
        if self._asks:
            self._require_time()

    def wait(self, future: Future[T]) -> T:
        """What `future` is settled with, or raises. Raises as `check` does, soon after that would;
        the future is left as it is then.
        """
        while True:
            try:
                return future.result(CHECK_SECONDS)
            except TimeoutError:  # which may be the future's own
                if future.done():
                    return future.result()
                self.check()

    def token(self, text: str) -> None:
        """Stream a piece of text. In a re-run, text before the last finished step is not repeated.

        May wait for the journal. Raises TypeError for anything but a `str`.
        """
        require(text)
        if self._position >= self._told:
            self._writer.token(text)

    def model(self, name: str, request: Any, call: Callable[[Emit], Any]) -> Any:
        """Run a model call as a step, its text streaming while it comes.

        `call` runs on a thread of its own. It is given a function to stream text with and returns
        the model's response, a JSON value. The response is recorded together with the last of its
        text, in one commit; from then on a re-run returns it without calling. A call that was cut
        off by a crash has its text withdrawn by a `rewind` and is made anew; so has one that raises
        ModelUnavailable, after a pause, and a few times at most. One that hangs is left to itself
        once the lease is lost, or the turn's time is over.

        `request` (a JSON value) is what the response depends on: a re-run that asks something
        else at this position fails with `agent_changed`.

        Returns the response as JSON gives it back, the same live and in a re-run. Raises
        StepFailed when `call` raised, live and in a re-run. Raises TurnFailed, which ends the turn
        even if it is caught: when the response is no JSON value or over 512 KiB, when `request` is
        no JSON value, when a re-run asks something else, when a step is begun inside another, when
        the budget is used up, when `call` raised ModelFailed, or ModelUnavailable too often.
        """
        asking = self.ask(name, request)
        while not asking.answered:
            pause = self.attempt(asking, lambda: self._beside(lambda: call(asking.emit)))
            self._wait(pause)
        return asking.response

    def ask(self, name: str, request: Any) -> Asking:
        """Begin a model step, or find it recorded: what `model` is made of, for an agent that
        cannot hand over a `call`. Raises as `model` does.

        The agent ends it before it begins another step: by `answer`, or with `failed`.
        """
        position = self._position + 1
        try:
            self._writer.check()
            if self._inside is not None:
                raise TurnFailed("nested_step", f"{name!r} was begun inside {self._inside!r}")
            args_hash = require_recordable(position, name, request)
            self._position = position
            self._spent.model_steps += 1
            step = self._begun.get(position)
            if step is None:
                self._spent.require(self._budget, self._seconds())
                step = Step(position, "model", name, args_hash, steps.STARTED)
            else:
                steps.require_same(step, "model", name, args_hash)
        except TurnFailed as failed:
            raise self._writer.fail(failed) from None
        if not step.finished:
            self._inside = name
            self._asks = True
        return Asking(step, self._writer, self._emit, self._record)

    def attempt(self, asking: Asking, call: Callable[[], Any]) -> float:
        """Make one attempt at a step, and take in what comes of it: seconds to wait for the next
        one. Raises as `model` does.
        """
        try:
            try:
                asking.answer(call())
            except Exception as error:  # noqa: BLE001 - sorted by the step
                return asking.failed(error)
        except TurnFailed as failed:
            raise self._writer.fail(failed) from None
        return 0.0

    def spend(self, tokens: int) -> None:
        """Say how many tokens the last model step took, by its recorded response: they count
        towards the agent's budget.
        """
        self._spent.tokens += tokens

    def conclude(
        self, *, reason: DoneReason = "stop", usage: Mapping[str, int] | None = None
    ) -> None:
        """Say what `done` is to tell when the agent returns: `stop`, or `length` when the model had
        to stop short; and what was used, whole numbers by name. The last call holds.

        Raises ValueError for another reason, or a usage that is no such mapping: numbers stay below
        2**53, which every client can hold.
        """
        if reason not in {"stop", "length"}:
            raise ValueError(f"a turn does not end by itself with {reason!r}")
        given: Mapping[Any, Any] = usage or {}
        for name, number in given.items():
            if not isinstance(name, str) or type(number) is not int or abs(number) >= 2**53:
                raise ValueError("usage is whole numbers by name")
        self.conclusion = Done(reason, None if usage is None else dict(usage))

    def call(self, tool: Tool, /, **args: Any) -> Outcome:
        """Run one tool call as a step. As `call_all` with one call."""
        return self.call_all([(tool, args)])[0]

    def call_all(self, calls: Sequence[tuple[Tool, Mapping[str, Any]]]) -> list[Outcome]:
        """Run the tool calls of one model response as steps, side by side; outcomes in order.

        Each takes the next position, in the order given. Its `tool_start` is committed, then the
        lease is checked, then the tool runs; its outcome and `tool_end` are one commit. In a
        re-run a finished call returns its outcome without running; one that a dead owner began is
        called again or is in doubt, as its tool's policy says.

        A tool that fails is an outcome, not an exception. Raises LeaseLost, and TurnFailed, which
        ends the turn even if it is caught: when a re-run asks something else, when arguments are
        no JSON, when a step is begun inside another. Raises TypeError for what is no tool.
        """
        for tool, _args in calls:
            if not isinstance(tool, Tool):
                raise TypeError(f"{tool!r} is no tool: declare it with @tool")
        first = self._position + 1
        try:
            self._writer.check()
            if self._inside is not None:
                raise TurnFailed("nested_step", f"tools were called inside {self._inside!r}")
            self._position += len(calls)
            self._spent.tool_calls += len(calls)
            if not all(position in self._begun for position in range(first, self._position + 1)):
                self._spent.require(self._budget, self._seconds())
            self._inside = "a tool call"
            try:
                return self._ledger.call_all(first, [(tool, dict(args)) for tool, args in calls])
            finally:
                self._inside = None
        except TurnFailed as failed:
            raise self._writer.fail(failed) from None

    def _seconds(self) -> float:
        """How long somebody has owned the turn."""
        return time.monotonic() - self._began

    def _emit(self, text: str) -> None:
        """Stream text of the model step that is open."""
        self._require_time()
        self._writer.token(text)

    def _beside(self, call: Callable[[], T]) -> T:
        """Do `call` on a thread of its own, and `wait` for it: nothing interrupts a thread."""
        future: Future[T] = Future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                future.set_result(context.run(call))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                future.set_exception(error)

        try:
            threading.Thread(target=work, name="model", daemon=True).start()
        except RuntimeError:  # no thread can be had
            return call()
        return self.wait(future)

    def _require_time(self) -> None:
        try:
            require_time(self._budget, self._seconds())
        except TurnFailed as failed:
            raise self._writer.fail(failed) from None

    def _wait(self, seconds: float) -> None:
        """Sleep; raises LeaseLost, and TurnFailed when the turn cannot go on."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, _POLL_SECONDS))

    def _record(self, step: Step) -> None:
        def also(batch: WriteBatch, last: int) -> None:
            fields = step.to_fields(
                run_id=self._turn.run_id,
                last=last,
                epoch=self._turn.holder.epoch,
                expire_at=self._turn.expire_at,
            )
            batch.create(steps.document(self._turn.key, step.position), fields)

        self._writer.commit(finishes_step=True, also=also)
        self._inside = None
        self._asks = False
