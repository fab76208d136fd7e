"""The functions of `main`, with an agent whose tokens are time stamps.

`plain_stream` is what the latency is compared with: the same frames from a generator, with no
journal and no lease.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from firebase_functions import https_fn
from flask import Request, Response

import main
from functions.endpoints.service import Service
from functions.turns.program import Agent, Emit, Turn
from functions.wire import sse
from functions.wire.events import Done, Token
from main import resume_turn, start_turn

__all__ = ["plain_stream", "resume_turn", "start_turn"]

_NUMBER = re.compile(r"(tokens|rate)=([0-9]+)")


def speak(prompt: str, emit: Callable[[str], None]) -> None:
    """Emit `tokens=N` tokens at `rate=N` a second, evenly, whatever each emission takes.

    A token's text is the monotonic clock in ns at its emission: one clock for the whole machine.
    """
    asked = {name: int(value) for name, value in _NUMBER.findall(prompt)}
    begun = time.monotonic()
    for number in range(1, asked["tokens"] + 1):
        emit(str(time.monotonic_ns()))
        time.sleep(max(0.0, begun + number / asked["rate"] - time.monotonic()))


def run(turn: Turn) -> None:
    """Make one model call, whose text is `speak`'s."""

    def call(emit: Emit) -> None:
        speak(turn.prompt, emit)

    turn.model("speak", {"prompt": turn.prompt}, call)


main.service = Service(lambda: Agent(run, version="bench-1"))


@https_fn.on_request()
def plain_stream(request: Request) -> Response:
    """Stream the same frames from this request's own thread; nothing of them is kept."""
    asked = request.get_json(silent=True) or {"prompt": "tokens=0 rate=1"}
    return Response(_plain(str(asked["prompt"])), content_type="text/event-stream")


def _plain(prompt: str) -> Iterator[bytes]:
    asked = {name: int(value) for name, value in _NUMBER.findall(prompt)}
    begun = time.monotonic()
    for number in range(1, asked["tokens"] + 1):
        yield sse.encode(number, Token(str(time.monotonic_ns())))
        time.sleep(max(0.0, begun + number / asked["rate"] - time.monotonic()))
    yield sse.encode(asked["tokens"] + 1, Done("stop"))
