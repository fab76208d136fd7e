"""The functions of `main`, with an agent that plays the script it is given as its prompt.

A script is a JSON list of actions: see `play`. Effects are counted outside the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from firebase_functions import https_fn
from flask import Request, Response
from google.cloud.firestore import Increment

import main
from functions import firestore
from functions.endpoints import front, service
from functions.endpoints.service import Service
from functions.turns import admission, journal, record, runner
from functions.turns.program import Agent, ModelUnavailable, StepFailed, Turn
from functions.turns.tools import Call, Happened, Policy, ToolError, tool
from main import (
    cancel_turn,
    delete_turns,
    finishturn,
    resume_turn,
    run_tool_step,
    start_turn,
    turn_sessions,
)

__all__ = [
    "broken",
    "cancel_turn",
    "delete_turns",
    "finishturn",
    "resume_turn",
    "run_tool_step",
    "start_turn",
    "turn_sessions",
]


class SecretError(Exception):
    """An agent's own error, whose text must not reach a client."""


Say = Callable[[str], None]


def play(turn: Turn, say: Say, actions: list[list[Any]]) -> None:
    """Play a script; `say` streams text. An action is its name and its values."""
    for name, *values in actions:
        ACTIONS[name](turn, say, *values)


def count(_turn: Turn, say: Say, first: int, last: int, rate: float, gate: str = "") -> None:
    """Say the numbers, `rate` a second, or as fast as it goes with 0 or without the file `gate`."""
    begun = time.monotonic()
    for number in range(first, last + 1):
        say(f"{number} ")
        if rate and (not gate or Path(gate).exists()):
            due = begun + (number - first + 1) / rate
            time.sleep(max(0.0, due - time.monotonic()))


def burn(_turn: Turn, _say: Say, seconds: float) -> None:
    """Use the CPU, in Python."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def hold(_turn: Turn, _say: Say, path: str) -> None:
    """Wait while a file exists."""
    while Path(path).exists():
        time.sleep(0.01)


def fail(_turn: Turn, _say: Say, text: str) -> None:
    """Raise an error with a text."""
    raise SecretError(text)


def fail_hard(_turn: Turn, _say: Say, text: str) -> None:
    """Raise what `except Exception` does not catch."""
    raise asyncio.CancelledError(text)


def straggle(turn: Turn, _say: Say) -> None:
    """Leave a thread behind that talks on after the agent returned."""

    def talk() -> None:
        with suppress(BaseException):
            while True:
                turn.token("late ")
                time.sleep(0.005)

    threading.Thread(target=talk, daemon=True).start()


def strays(_turn: Turn, _say: Say) -> None:
    """Fail where nobody looks: in a thread of one's own, in a task, in a library's log or warning,
    as an object is cleared away.
    """
    from pydantic import BaseModel

    def break_down() -> None:
        raise SecretError("sk-secret-1234")

    async def break_down_alone() -> None:
        break_down()

    class Untidy:
        def __del__(self) -> None:
            break_down()

    class Order(BaseModel):
        name: str

    async def forget() -> None:
        _tasks = [asyncio.create_task(break_down_alone())]
        await asyncio.sleep(0.01)

    thread = threading.Thread(target=break_down)
    thread.start()
    thread.join()
    asyncio.run(forget())
    logging.getLogger("a.library").warning("too many %s", "redirects")
    Untidy()
    Order.model_construct(name=["sk-secret-1234"]).model_dump_json()


def effect(_turn: Turn, _say: Say, path: str) -> None:
    """Leave a line in a file."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")


def swallow(turn: Turn, say: Say, inner: list[list[Any]]) -> None:
    """Do what careless agents do."""
    try:
        play(turn, say, inner)
    except Exception:  # noqa: BLE001 - the point
        say("(swallowed)")


def model(turn: Turn, _say: Say, label: str, inner: list[list[Any]], result: Any) -> None:
    """A model step that plays `inner` and returns `result`, which is then told."""
    try:
        told = turn.model(label, inner, lambda emit: _then(turn, emit, inner, result))
    except StepFailed as failed:
        told = f"failed {failed.position} {failed.cause}"
    turn.token(f"[{label}: {json.dumps(told)}]")


def model_of_this_process(turn: Turn, _say: Say, label: str, inner: list[list[Any]]) -> None:
    """A model step of another name in each process: a re-run that is not the same program."""
    turn.model(f"{label}-{os.getpid()}", None, lambda emit: _then(turn, emit, inner, None))


def unavailable(_turn: Turn, _say: Say, path: str, times: int, seconds: float) -> None:
    """So many times a model that wants to be asked again after `seconds`, counted by the lines."""
    with Path(path).open("a+") as file:
        file.write("asked\n")
        file.seek(0)
        if len(file.readlines()) <= times:
            raise ModelUnavailable("sk-secret", retry_after_seconds=seconds)


def die_once(_turn: Turn, _say: Say, path: str) -> None:
    """Kill the container, unless that was done."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _then(turn: Turn, emit: Say, inner: list[list[Any]], result: Any) -> Any:
    play(turn, emit, inner)
    return result


def _leave(call: Call, path: str, hold: str) -> dict[str, Any]:
    """An effect outside the process, counted by its lines; then wait while `hold` exists."""
    with Path(path).open("a") as file:
        file.write(f"{call.idempotency_key}\n")
    while hold and Path(hold).exists():
        time.sleep(0.01)
    return {"step": call.step}


@tool()
def once(call: Call, *, path: str, hold: str = "") -> dict[str, Any]:
    """An effect that may take place once."""
    return _leave(call, path, hold)


@tool(policy=Policy.IDEMPOTENT)
def again(call: Call, *, path: str, hold: str = "") -> dict[str, Any]:
    """An effect that may be asked for again with the same key."""
    return _leave(call, path, hold)


def _look(_call: Call, *, path: str, hold: str = "") -> Happened | None:
    assert hold is not None
    happened = Path(path).exists()
    return Happened({"reconciled": True}) if happened else None


@tool(reconcile=_look)
def known(call: Call, *, path: str, hold: str = "") -> dict[str, Any]:
    """An effect that can be looked up afterwards."""
    return _leave(call, path, hold)


def _book(call: Call, path: str, hold: str) -> dict[str, Any]:
    """Count the runs of the body in a file, and the effect in Firestore."""
    _leave(call, path, hold)
    effect = firestore.client().collection("effects").document(call.idempotency_key)
    call.staged.set(effect, {"count": Increment(1)}, merge=True)
    return {"step": call.step}


@tool(policy=Policy.TRANSACTIONAL)
def booked(call: Call, *, path: str, hold: str = "") -> dict[str, Any]:
    """An effect that is a write of the transaction."""
    return _book(call, path, hold)


@tool(policy=Policy.TRANSACTIONAL, timeout_seconds=10)
def contended(call: Call, *, document: str) -> int:
    """Reads and writes a document that others write, too."""
    reference = firestore.client().document(document)
    (snapshot,) = call.staged.get(reference)
    count = (snapshot.to_dict() or {}).get("count", 0)
    call.staged.set(reference, {"count": count + 1})
    return int(count + 1)


@tool(policy=Policy.TRANSACTIONAL)
def refused(call: Call, *, kind: str, document: str) -> Any:
    """Stages a write, and then cannot succeed."""
    reference = firestore.client().document(document)
    if kind == "exists":
        call.staged.create(reference, {"count": 2})
        return 1
    call.staged.set(reference, {"count": 1})
    if kind == "error":
        raise ToolError("changed my mind")
    return ODD_RESULTS[kind]


@tool(approval_seconds=600)
def refund(call: Call, *, path: str, hold: str = "") -> dict[str, Any]:
    """Needs a person."""
    return _leave(call, path, hold)


@tool(approval_seconds=1.5)
def hasty(call: Call, *, path: str) -> dict[str, Any]:
    """Needs a person who is quick."""
    return _leave(call, path, "")


def _late(path: str) -> str:
    while Path(path).exists():
        time.sleep(0.01)
    return "late"


@tool(timeout_seconds=0.5)
def slow_once(_call: Call, *, hold: str) -> str:
    """Takes its time, while a file exists; nobody may ask twice."""
    return _late(hold)


@tool(policy=Policy.IDEMPOTENT, timeout_seconds=0.5)
def slow_again(_call: Call, *, hold: str) -> str:
    """Takes its time, while a file exists."""
    return _late(hold)


@tool(timeout_seconds=120)
def busy(_call: Call, *, seconds: float, burn: bool = False) -> str:
    """Blocks, or burns CPU in Python."""
    until = time.monotonic() + seconds
    while burn and time.monotonic() < until:
        sum(range(1000))
    time.sleep(max(0.0, until - time.monotonic()))
    return "done"


@tool()
def odd(_call: Call, *, kind: str) -> Any:
    """Returns what cannot be recorded, or raises."""
    if kind == "tool error":
        raise ToolError("the shop is closed")
    if kind == "error":
        raise SecretError("sk-secret-1234")
    if kind == "hard":
        raise asyncio.CancelledError("sk-secret-1234")
    return ODD_RESULTS[kind]


TOOLS = {
    one.name: one
    for one in (
        once, again, known, booked, contended, refused, refund, hasty,
        slow_once, slow_again, busy, odd,
    )
}  # fmt: skip


def call_tools(turn: Turn, _say: Say, *calls: list[Any]) -> None:
    """Call tools side by side, `[name, args]` each, and tell their outcomes."""
    outcomes = turn.call_all([(TOOLS[name], args) for name, args in calls])
    told = "; ".join(f"{one.status} {json.dumps(one.result)}" for one in outcomes)
    turn.token(f"[{told}]")


ODD_RESULTS: dict[str, Any] = {
    "nan": float("nan"),
    "set": {1},
    "bytes": b"x",
    "huge": "x" * 600_000,
    "keys": {1: "one"},
    "tuple": (1, 2),
}


ACTIONS: dict[str, Callable[..., object]] = {
    "say": lambda _turn, say, text: say(text),
    "say times": lambda _turn, say, text, times: say(text * times),
    "count": count,
    "sleep": lambda _turn, _say, seconds: time.sleep(seconds),
    "burn": burn,
    "hold": hold,
    "raise": fail,
    "history": lambda turn, say: say(json.dumps(turn.history)),
    "remember": lambda turn, _say, messages: turn.remember(messages),
    "raise hard": fail_hard,
    "straggle": straggle,
    "strays": strays,
    "die": lambda _turn, _say: os.kill(os.getpid(), signal.SIGKILL),
    "die once": die_once,
    "effect": effect,
    "swallow": swallow,
    "model": model,
    "tools": call_tools,
    "unavailable": unavailable,
    "model of this process": model_of_this_process,
    "odd result": lambda turn, _say, kind: turn.model("odd", None, lambda _emit: ODD_RESULTS[kind]),
}


def run(turn: Turn) -> None:
    """Play the prompt."""
    play(turn, turn.token, json.loads(turn.prompt))


# Firestore's emulator, and a test that acts within these, are no quicker than their machine.
firestore.READ_SECONDS = float(os.environ.get("READ_SECONDS", "20"))
for module in (firestore, record, journal):
    for function in vars(module).values():
        defaults = getattr(function, "__kwdefaults__", None) or {}
        if "within_seconds" in defaults:
            defaults["within_seconds"] = firestore.READ_SECONDS
if "DRAIN_SECONDS" in os.environ:
    runner.TOOLS_SECONDS = float(os.environ["DRAIN_SECONDS"])
    vars(service).update(DRAIN_SECONDS=runner.TOOLS_SECONDS)
if "FIRST_EVENT_SECONDS" in os.environ:
    admission.FIRST_EVENT_SECONDS = float(os.environ["FIRST_EVENT_SECONDS"])

main.service = Service(
    lambda: Agent(
        run,
        version=os.environ.get("AGENT_VERSION", "1"),
        accepts=frozenset(os.environ.get("AGENT_ACCEPTS", "").split()),
    )
)


@https_fn.on_request()
def broken(request: Request) -> Response:
    """A function with a bug, or with one that would end the process."""

    def handle(request: Request) -> Response:
        raise SystemExit("sk-secret-1234") if request.args else SecretError("sk-secret-1234")

    return front.serve(request, main.service.settings, methods=("GET", "POST"), handler=handle)
