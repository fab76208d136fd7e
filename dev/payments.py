"""A payment server for development that honours idempotency keys: one effect for each key.

`make dev` runs it for the demo agent: `python3 -m dev.payments --port 5005`. It keeps everything in
memory. POST /charges or /refunds with `{"order": …, "cents": …}` and an `Idempotency-Key`: a
repeated key gets the same answer and has no effect, the same key with something else is 422.
GET /effects lists what took place, and how often it was asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from dev import command
from dev.project import ProblemError
from dev.server import LocalServer

_KINDS = {"/charges": "charge", "/refunds": "refund"}
_MOST_BYTES = 65_536


@dataclass
class Effect:
    """A charge or a refund that took place."""

    kind: str
    id: str
    order: str
    cents: int
    key: str
    calls: int = 1
    """How often it was asked for, under one key."""

    @property
    def answer(self) -> dict[str, Any]:
        """What every call with its key is told."""
        return {"id": self.id, "order": self.order, "cents": self.cents}


class RefusedError(Exception):
    """A request that has no effect; the status and the words of its answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Payments:
    """What took place, by key. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._effects: dict[str, Effect] = {}

    def pay(self, kind: str, key: str, order: str, cents: int) -> Effect:
        """Take effect, unless the key already has; the key's one effect.

        Raises:
            RefusedError: the key was used for something else.
        """
        with self._lock:
            known = self._effects.get(key)
            if known is None:
                number = 1 + sum(one.kind == kind for one in self._effects.values())
                known = Effect(kind, f"{kind}-{number}", order, cents, key)
                self._effects[key] = known
                return known
            if (known.kind, known.order, known.cents) != (kind, order, cents):
                raise RefusedError(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "this key was used for something else"
                )
            known.calls += 1
            return known

    def effects(self) -> dict[str, Any]:
        """List what took place, with counts of the effects and of the calls that asked for them."""
        with self._lock:
            effects = list(self._effects.values())
            return {
                "charges": sum(one.kind == "charge" for one in effects),
                "refunds": sum(one.kind == "refund" for one in effects),
                "calls": sum(one.calls for one in effects),
                "effects": [{**vars(one)} for one in effects],
            }


class Server(LocalServer):
    """The server on a port of 127.0.0.1.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int) -> None:
        self.payments = Payments()
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10

    def do_GET(self) -> None:
        if self.path == "/effects":
            self._answer(HTTPStatus.OK, self.server.payments.effects())
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is no such path"})

    def do_POST(self) -> None:
        try:
            effect = self._pay()
        except RefusedError as refused:
            self._answer(refused.status, {"error": str(refused)})
            return
        again = f", asked for {effect.calls} times: no effect" if effect.calls > 1 else ""
        print(f"payments: {effect.id} of {effect.cents} cents{again}", flush=True)
        self._answer(HTTPStatus.OK, effect.answer)

    def log_message(self, _format: str, *args: object) -> None:
        """Say nothing: what took place is printed."""

    def _pay(self) -> Effect:
        kind, key = _KINDS.get(self.path), self.headers.get("Idempotency-Key", "")
        if kind is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such path")
        if not key:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the Idempotency-Key is missing")
        try:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(min(max(length, 0), _MOST_BYTES)))
        except ValueError:
            body = None
        wanted = {"order": str, "cents": int}
        if (
            not isinstance(body, dict)
            or {name: type(value) for name, value in body.items()} != wanted
            or body["cents"] <= 0
        ):
            raise RefusedError(
                HTTPStatus.BAD_REQUEST, 'the body is not {"order": string, "cents": above 0}'
            )
        return self.server.payments.pay(kind, key, body["order"], body["cents"])

    def _answer(self, status: HTTPStatus, value: dict[str, Any]) -> None:
        body = json.dumps(value, indent=1).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def program(port: int) -> list[str]:
    """Return the command that runs the server on a port, from the repository's folder."""
    return [sys.executable, "-m", "dev.payments", "--port", str(port)]


def main() -> int:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser(
        prog="python3 -m dev.payments", description="Run the demo's payment server."
    )
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    try:
        server = Server(port)
    except OSError as error:
        raise ProblemError(f"The payment server cannot have port {port}: {error}") from error
    with server:
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(command.status(main))
