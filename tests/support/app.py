"""The functions of `main`, with an agent that plays the script it is given as its prompt.

A script is a JSON list of actions: see `play`. Effects are counted outside the process.
"""

from __future__ import annotations

import asyncio
import json
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

from functions.endpoints import cancel, resume, start
from functions.endpoints.service import Service
from functions.turns.program import Agent, StepFailed, Turn


class SecretError(Exception):
    """An agent's own error, whose text must not reach a client."""


Say = Callable[[str], None]


def play(turn: Turn, say: Say, actions: list[list[Any]]) -> None:
    """Play a script; `say` streams text. An action is its name and its values."""
    for name, *values in actions:
        ACTIONS[name](turn, say, *values)


def count(_turn: Turn, say: Say, first: int, last: int, rate: float) -> None:
    """Say the numbers, `rate` a second, or as fast as it goes with 0."""
    begun = time.monotonic()
    for number in range(first, last + 1):
        say(f"{number} ")
        if rate:
            due = begun + (number - first + 1) / rate
            time.sleep(max(0.0, due - time.monotonic()))


def burn(_turn: Turn, _say: Say, seconds: float) -> None:
    """Use the CPU, in Python."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


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


def _then(turn: Turn, emit: Say, inner: list[list[Any]], result: Any) -> Any:
    play(turn, emit, inner)
    return result


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
    "raise": fail,
    "raise hard": fail_hard,
    "straggle": straggle,
    "die": lambda _turn, _say: os.kill(os.getpid(), signal.SIGKILL),
    "effect": effect,
    "swallow": swallow,
    "model": model,
    "model of this process": model_of_this_process,
    "odd result": lambda turn, _say, kind: turn.model("odd", None, lambda _emit: ODD_RESULTS[kind]),
}


def run(turn: Turn) -> None:
    """Play the prompt."""
    play(turn, turn.token, json.loads(turn.prompt))


service = Service(lambda: Agent(run, version=os.environ.get("AGENT_VERSION", "1")))


@https_fn.on_request()
def start_turn(request: Request) -> Response:
    """`start_turn` with the scripted agent."""
    return start.start_turn(request, service)


@https_fn.on_request()
def resume_turn(request: Request) -> Response:
    """`resume_turn` with the scripted agent."""
    return resume.resume_turn(request, service)


@https_fn.on_request()
def cancel_turn(request: Request) -> Response:
    """`cancel_turn`, for the scripted agent's turns."""
    return cancel.cancel_turn(request, service)
