"""Runs an agent on the Firestore emulator, kills its container at a named point, has others finish.

    with Kit("my.agents:agent", storage=emulator.address) as kit:
        run = kit.run("Charge A-17", crash_at=CrashPoint.AFTER_EFFECT, effect=paid)
    assert run.outcomes == {1: "ok"}

A container is a process of its own that runs the turn with the code of the deployed functions, all
but HTTP. The points are recognised by the commits that really pass on to Firestore, so nothing of
the agent, its tools or this package is replaced. Leases are long, for a busy machine not to lose
one by itself; that of a container which was killed is over at once. See docs/guides/testing.md.
"""

from __future__ import annotations

import enum
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Self

from functions.errors import AgentFailed, StorageUnavailable
from functions.settings import settings
from functions.turns import admission, decide, record
from functions.turns.owners import Owners
from functions.turns.record import Request
from functions.turns.steps import FINAL, STARTED
from functions.wire import sse
from functions.wire.fold import Fold
from functions.wire.sse import Frame

from .firestore_proxy import FirestoreProxy, Hold, HoldAnswer, Predicate, Rule

PROJECT = "demo-agent-turns"
CALLER = "kit"
"""The owner of every turn."""
MOST_CONTAINERS = 20
"""A turn that takes more of them does not end."""
_POLL_SECONDS = 0.01
_STAY = threading.Event()
"""Never set: the call that a container dies in stays where it is."""


class CrashPoint(enum.Enum):
    """Where the container that runs a step is killed: see docs/crash-points.md."""

    BEFORE_START_COMMIT = "before the start commit"
    AFTER_START_COMMIT = "after the start commit"
    """The step is recorded as started; its tool was not called yet."""
    AFTER_EFFECT = "after the effect"
    """As soon as `effect` says so, with the tool perhaps still in its body."""
    BEFORE_OUTCOME_COMMIT = "before the outcome commit"
    """The tool has returned."""
    AFTER_OUTCOME_COMMIT = "after the outcome commit"
    """Before the container learns that it is applied."""
    BEFORE_DECISION = "before the decision"
    """A person's approval or denial is on its way to Firestore."""
    AFTER_DECISION = "after the decision"


@dataclass(frozen=True)
class Run:
    """What became of a turn, as one client saw it that followed it to its end."""

    turn_id: str
    events: Sequence[Frame]
    text: str
    outcomes: Mapping[int, str]
    """The status of each step that ended, by position."""
    waits: bool
    """Whether it ended because the turn waits for a decision that `decisions` does not hold."""
    runs: int
    """Owners the turn had, one after the other."""


class Kit:
    """A context manager. `agent` is "module:attribute", a function that returns the `Agent`;
    `storage` is the emulator's host and port; `environ` is for the containers.
    """

    def __init__(self, agent: str, storage: str, **environ: str) -> None:
        self._agent = agent
        self._storage = storage
        self._proxy = FirestoreProxy(upstream=storage)
        self._environ = environ

    def __enter__(self) -> Self:
        self._proxy.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._proxy.__exit__(*raised)

    def run(
        self,
        prompt: str,
        *,
        crash_at: CrashPoint | None = None,
        step: int = 1,
        effect: Callable[[], bool] | None = None,
        decisions: Mapping[int, str] | None = None,
        timeout: float = 100,
    ) -> Run:
        """Run a turn to its end, or until it waits for a decision that is not in `decisions`
        (`approve` or `deny`, by step). The container that comes to `crash_at` of `step` is killed.

        `effect` says whether the tool took effect: for AFTER_EFFECT alone. AssertionError when the
        turn does not come to the point, TimeoutError when it takes too long.
        """
        if (crash_at is CrashPoint.AFTER_EFFECT) != (effect is not None):
            raise ValueError("AFTER_EFFECT, and it alone, needs `effect`")
        turn = _Followed(str(uuid.uuid4()), prompt, decisions or {})
        rules = () if crash_at is None else self._rules(crash_at, step)
        crashed = not rules
        until = time.monotonic() + timeout
        for _ in range(MOST_CONTAINERS):
            with self._container(turn) as container:
                if self._comes_to(container, rules, effect, until):
                    container.kill()
                    for rule in rules:
                        self._proxy.remove(rule)
                    self._end_lease(turn.id)
                    crashed, rules, effect = True, (), None
                elif container.failed:
                    raise AssertionError(f"a container broke down\n{container.log()}")
                turn.take(container.output())
            if turn.over:
                break
        if not crashed:
            raise AssertionError(f"the turn never came to {crash_at} of step {step}")
        if not turn.over:
            raise AssertionError(f"no end after {MOST_CONTAINERS} containers")
        return turn.result(runs=self._epoch(turn.id))

    def _rules(self, point: CrashPoint, step: int) -> tuple[Rule, ...]:
        """The rule that fires at the point, and one for what the container does until it is killed:
        nothing more of it gets through.
        """
        writes, fault = {
            CrashPoint.BEFORE_START_COMMIT: (_starts, Hold),
            CrashPoint.AFTER_START_COMMIT: (_starts, HoldAnswer),
            CrashPoint.AFTER_EFFECT: (_ends, Hold),
            CrashPoint.BEFORE_OUTCOME_COMMIT: (_ends, Hold),
            CrashPoint.AFTER_OUTCOME_COMMIT: (_ends, HoldAnswer),
            CrashPoint.BEFORE_DECISION: (_decides, Hold),
            CrashPoint.AFTER_DECISION: (_decides, HoldAnswer),
        }[point]
        at = self._proxy.inject("Commit", fault(_STAY), when=_of_step(step, writes), times=1)
        return at, self._proxy.inject("*", Hold(_STAY), when=lambda _request: at.fired > 0)

    def _end_lease(self, turn_id: str) -> None:
        """Let nobody wait for the lease of a container that was killed, if it left a turn."""
        name = f"agent_turns/{record.turn_key(CALLER, turn_id)}"
        root = f"projects/{PROJECT}/databases/(default)/documents"
        over = {"lease": {"mapValue": {"fields": {"seconds": {"doubleValue": 0}}}}}
        request = urllib.request.Request(
            f"http://{self._storage}/v1/{root}/{name}"
            "?updateMask.fieldPaths=lease.seconds&currentDocument.exists=true",
            method="PATCH",
            data=json.dumps({"fields": over}).encode(),
            headers={"Authorization": "Bearer owner", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                if refusal.code != HTTPStatus.NOT_FOUND:
                    raise

    def _comes_to(
        self,
        container: _Container,
        rules: Sequence[Rule],
        effect: Callable[[], bool] | None,
        until: float,
    ) -> bool:
        """Whether the container comes to the point before it ends. TimeoutError at `until`."""
        while not container.over and not self._reached(rules, effect):
            if time.monotonic() > until:
                raise TimeoutError(f"no end in time\n{container.log()}")
            time.sleep(_POLL_SECONDS)
        return not container.over

    def _reached(self, rules: Sequence[Rule], effect: Callable[[], bool] | None) -> bool:
        """Whether the commit of the first rule is held, or applied if only its answer is."""
        if not rules:
            return False
        rule = rules[0]
        if effect is not None:
            return effect()
        held = next((call for call in self._proxy.calls if call.rule is rule), None)
        answer = any(isinstance(fault, HoldAnswer) for fault in rule.faults)
        return held is not None and (held.upstream is not None or not answer)

    def _container(self, turn: _Followed) -> _Container:
        return _Container(
            [self._agent, turn.id, *turn.next_call()],
            {"FIRESTORE_EMULATOR_HOST": self._proxy.address, **self._environ},
        )

    def _epoch(self, turn_id: str) -> int:
        """The last epoch whose owner wrote the turn."""
        path = f"/documents/agent_turns/{record.turn_key(CALLER, turn_id)}"
        epochs = [
            write.update.fields["lease"].map_value.fields["epoch"].integer_value
            for call in self._proxy.calls
            if call.method == "Commit" and call.upstream == "OK"
            for write in call.request.writes
            if write.update.name.endswith(path) and "lease" in write.update.fields
        ]
        return max(epochs, default=0)


def _starts(fields: Mapping[str, Any]) -> bool:
    return "status" in fields and fields["status"].string_value == STARTED


def _ends(fields: Mapping[str, Any]) -> bool:
    return "status" in fields and fields["status"].string_value in FINAL


def _decides(fields: Mapping[str, Any]) -> bool:
    return "decision" in fields and "status" not in fields


def _of_step(step: int, wanted: Callable[[Mapping[str, Any]], bool]) -> Predicate:
    """Select the commits that write the document of a step so."""
    name = re.compile(rf".*/documents/agent_turns/[^/]+/agent_turn_steps/{step:06d}")
    return lambda request: any(
        name.fullmatch(write.update.name) and wanted(write.update.fields)
        for write in request.writes
    )


class _Followed:
    """A turn and its client, which does what docs/PROTOCOL.md, "Clients", asks of it."""

    def __init__(self, turn_id: str, prompt: str, decisions: Mapping[int, str]) -> None:
        self.id = turn_id
        self._prompt = prompt
        self._decisions = decisions
        self._events: list[Frame] = []
        self._fold = Fold()
        self._pending: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it: it ended, or waits for somebody else."""
        return self._fold.ended is not None or self._waits

    @property
    def _waits(self) -> bool:
        return bool(self._pending) and self._pending.isdisjoint(self._decisions)

    def next_call(self) -> list[str]:
        """What the client asks the next container for."""
        cursor = str(self._fold.cursor)
        for step in sorted(self._pending & set(self._decisions)):
            return ["decide", cursor, str(step), self._decisions[step]]
        return ["resume", cursor] if self._fold.cursor else ["start", cursor, self._prompt]

    def take(self, stream: bytes) -> None:
        """Take what a container said before it ended, or was killed in the midst of it."""
        whole = stream[: stream.rfind(b"\n\n") + 2] if b"\n\n" in stream else b""
        for frame in sse.decode(whole.replace(sse.PING, b"")):
            if frame.id > self._fold.cursor:
                self._events.append(frame)
                self._fold.apply(frame)
                if frame.type == "tool_pending":
                    self._pending.add(frame.data["step"])
                elif frame.type in {"tool_start", "tool_end"}:
                    self._pending.discard(frame.data["step"])

    def result(self, runs: int) -> Run:
        """All that was seen."""
        ends = [event.data for event in self._events if event.type == "tool_end"]
        return Run(
            turn_id=self.id,
            events=tuple(self._events),
            text=self._fold.text,
            outcomes={end["step"]: end["status"] for end in ends},
            waits=self._waits,
            runs=runs,
        )


class _Container:
    """A process that serves one call and writes its stream to its standard output."""

    def __init__(self, call: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", __name__, *call]
        self._environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
            "GCLOUD_PROJECT": PROJECT,
            "LEASE_SECONDS": "20",
            "FLUSH_SECONDS": "0.05",
            "HEARTBEAT_SECONDS": "0.5",
            "THREADS": "16",
            **environ,
        }

    def __enter__(self) -> Self:
        self._log, self._output = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._log,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()
        self._output.close()

    @property
    def over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether it ended with an error."""
        return self._process.poll() not in {None, 0}

    def kill(self) -> None:
        """SIGKILL, as the platform does to a container."""
        self._process.kill()
        self._process.wait()

    def output(self) -> bytes:
        """What it streamed."""
        self._output.seek(0)
        return self._output.read()

    def log(self) -> str:
        """What it logged."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


def _serve(agent: str, turn_id: str, call: str, cursor: str, *values: str) -> Iterator[bytes]:
    """Inside a container: the stream that answers a call."""
    module, _, attribute = agent.partition(":")
    owners = Owners(getattr(importlib.import_module(module), attribute), settings())
    attach = partial(
        admission.resume, CALLER, turn_id, int(cursor), owners=owners, settings=settings()
    )
    admitted: admission.Admitted
    if call == "resume":
        admitted = attach()
    elif call == "start":
        request = Request(values[0], None)
        try:
            admitted = admission.start(
                CALLER, turn_id, request, int(cursor), owners=owners, settings=settings()
            )
        except AgentFailed:  # the turn has ended, with an event that says so
            admitted = attach()
    else:
        step, decision = values
        admitted = decide.decide(
            CALLER, turn_id, int(step), decision, int(cursor), owners=owners, settings=settings()
        )
    if not isinstance(admitted, admission.AtEnd):
        yield from admitted


def _main() -> None:
    with os.fdopen(os.dup(1), "wb", 0) as output:
        os.dup2(2, 1)  # what the agent or the package prints is no part of the stream
        while True:
            try:
                for piece in _serve(*sys.argv[1:]):
                    output.write(piece)
            except StorageUnavailable:  # a busy machine: a client asks again
                continue
            return


if __name__ == "__main__":
    _main()
