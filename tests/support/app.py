"""The functions of `main`, with an agent that plays the script it is given as its prompt.

A script is a JSON list of actions: see `play`. Effects are counted outside the process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firebase_functions import https_fn
from flask import Request, Response

from functions.endpoints import resume, start
from functions.endpoints.service import Service
from functions.turns.program import Agent, StepFailed, Turn


class SecretError(Exception):
    """An agent's own error, whose text must not reach a client."""


def play(turn: Turn, say: Callable[[str], None], actions: list[list[Any]]) -> None:
    """Play a script; `say` streams text."""
    for name, *values in actions:
        match name, values:
            case "say", [text]:
                say(text)
            case "say times", [text, times]:
                say(text * times)
            case "count", [first, last, rate]:
                begun = time.monotonic()
                for number in range(first, last + 1):
                    say(f"{number} ")
                    if rate:
                        due = begun + (number - first + 1) / rate
                        time.sleep(max(0.0, due - time.monotonic()))
            case "sleep", [seconds]:
                time.sleep(seconds)
            case "wait", [path]:
                while not Path(path).exists():
                    time.sleep(0.01)
            case "burn", [seconds]:
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    sum(range(1000))
            case "raise", [text]:
                raise SecretError(text)
            case "effect", [path]:
                with Path(path).open("a") as file:
                    file.write(f"{os.getpid()}\n")
            case "die", []:
                os.kill(os.getpid(), 9)
            case "model", [label, inner, result]:
                model(turn, label, inner, result)
            case "model twice as", [label, inner, result]:
                # Another request in each process: a re-run that is not the same program.
                turn.model(
                    f"{label}-{os.getpid()}", None, lambda emit: _then(turn, emit, inner, result)
                )
            case "odd result", [kind]:
                turn.model("odd", None, lambda _emit: ODD_RESULTS[kind])
            case "swallow", [inner]:
                try:
                    play(turn, say, inner)
                except Exception:  # noqa: BLE001 - what careless agents do
                    say("(swallowed)")
            case _:
                raise ValueError(f"no such action: {name}")


ODD_RESULTS: dict[str, Any] = {
    "nan": float("nan"),
    "set": {1},
    "bytes": b"x",
    "huge": "x" * 600_000,
    "keys": {1: "one"},
    "tuple": (1, 2),
}


def model(turn: Turn, label: str, inner: list[list[Any]], result: Any) -> None:
    """A model step that plays `inner` and returns `result`, which is then told."""
    try:
        told = turn.model(label, inner, lambda emit: _then(turn, emit, inner, result))
    except StepFailed as failed:
        told = f"failed {failed.position} {failed.cause}"
    turn.token(f"[{label}: {json.dumps(told)}]")


def _then(turn: Turn, emit: Callable[[str], None], inner: list[list[Any]], result: Any) -> Any:
    play(turn, emit, inner)
    return result


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
