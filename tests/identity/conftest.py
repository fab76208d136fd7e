"""Calls with chosen tokens, to processes that live as long as a test file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.conftest import PROJECT, Serve
from tests.support.client import new_turn_id
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

ORIGIN = "http://127.0.0.1:5000"
UNKNOWN = (404, "unknown_turn")
BUSY = (503, "storage_unavailable")
LET_IN = {UNKNOWN, BUSY}
"""The gate is behind the caller, who names a turn that nobody has: a busy machine may be late to
find that out."""


@dataclass(frozen=True)
class Answer:
    """An answer, read to its end."""

    status: int
    code: str
    headers: dict[str, str]
    body: bytes

    @property
    def outcome(self) -> tuple[int, str]:
        """Status and code; the code of a stream is empty."""
        return self.status, self.code


def call(
    server: FunctionServer,
    *,
    app: str | None = None,
    bearer: str | None = None,
    authorization: str | None = None,
    turn_id: str = "",
    body: bytes | None = None,
    method: str = "",
    origin: str | None = None,
    query: str = "",
) -> Answer:
    """Call a function with those tokens, and read all of its answer.

    AssertionError unless a page of our origin, and of no other, can read it.
    """
    given = {"X-Stream-Turn-Id": turn_id or new_turn_id(), "Origin": origin or ORIGIN}
    if app is not None:
        given["X-Firebase-AppCheck"] = app
    if bearer is not None:
        authorization = f"Bearer {bearer}"
    if authorization is not None:
        given["Authorization"] = authorization
    if body is not None:
        given["Content-Type"] = "application/json"
    method = method or ("GET" if body is None else "POST")
    with RawStream(server.url + query, method, given, body) as stream:
        stream.read_to_end(timeout=60)
        head = stream.headers
        if origin in {None, ORIGIN}:
            assert head["access-control-allow-origin"] == ORIGIN
            assert "Retry-After" in head["access-control-expose-headers"]
        else:
            assert not [name for name in head if name.startswith("access-control")]
        code = ""
        if head["content-type"] == "application/json":
            code = json.loads(stream.body).get("error", {}).get("code", "")
        return Answer(stream.status, code, head, stream.body)


def asked(ask: Callable[[], Answer]) -> Answer:
    """What is answered, asked anew (with other tokens, so) while a busy machine's storage is late:
    a client comes back then, too.
    """
    for _ in range(20):
        answer = ask()
        if answer.outcome != BUSY:
            return answer
    raise RuntimeError("the storage does not answer")


def warmed(server: FunctionServer, ask: Callable[[FunctionServer], Answer]) -> FunctionServer:
    """The server, once it has its client of Firestore: a busy machine may take long to make it."""
    asked(lambda: ask(server))
    return server


@pytest.fixture(scope="module")
def module_serve(firestore_emulator: str) -> Iterator[Serve]:
    """Start processes that live as long as the tests of a file."""
    with ExitStack() as stack:

        def start_one(target: str, **environ: str) -> FunctionServer:
            server = FunctionServer(target, firestore_emulator, PROJECT, environ)
            return stack.enter_context(server)

        yield start_one
