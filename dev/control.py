"""What the demo page may do to the local stack: kill the containers of a turn, count the effects.

`make dev` runs it beside the Emulator Suite. It listens on a free port of 127.0.0.1, which it
writes into a file that the page reads. GET /effects tells what the tools brought about: payments
as the payment server counts them, tickets as Firestore does. POST /kill ends every process that
serves a streaming function, by SIGKILL, as a host does that takes a machine away.

No foreign page can reach it: it answers to its own name only (`Host`), tells other origins nothing,
and a POST needs a header that a page can send to it only after it was asked (a preflight).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from dev import command, processes
from dev.project import LOCAL_PROJECT, TICKETS, ProblemError
from dev.server import LocalServer

HEADER = "X-Agent-Turns-Control"
"""Has to stand in a POST. Its name is no secret; that it makes a browser ask first is the point."""

TARGETS = ("start_turn", "resume_turn", "run_tool_step")
"""The functions that stream a turn: one of them owns it."""

_ANSWER_SECONDS = 10.0


class Server(LocalServer):
    """The server on a free port of 127.0.0.1.

    Args:
        mark: says which stack's processes may be killed.
        hosting: the port of the pages that may call.
        firestore: the port of the Firestore emulator.
        payments: the URL of the payment server; None where there is none.
    """

    def __init__(self, mark: str, hosting: int, firestore: int, payments: str | None) -> None:
        self.mark = mark
        self.firestore = firestore
        self.origins = [f"http://{host}:{hosting}" for host in ("127.0.0.1", "localhost")]
        self.payments = payments
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}"

    def kill(self) -> list[int]:
        """End the processes that serve a streaming function; return those that were there."""
        ours = set(processes.marked(self.mark))
        pids = [
            pid
            for target in TARGETS
            for pid in processes.carrying("FUNCTION_TARGET", target)
            if pid in ours
        ]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def effects(self) -> dict[str, int | None]:
        """Count what took place; None for what nobody can tell."""
        paid = None if self.payments is None else _ask(f"{self.payments}/effects")
        counts = paid if isinstance(paid, dict) else {}
        return {
            "charges": counts.get("charges"),
            "refunds": counts.get("refunds"),
            "tickets": self._tickets(),
        }

    def _tickets(self) -> int | None:
        query = {
            "structuredAggregationQuery": {
                "structuredQuery": {"from": [{"collectionId": TICKETS}]},
                "aggregations": [{"alias": "tickets", "count": {}}],
            }
        }
        path = f"v1/projects/{LOCAL_PROJECT}/databases/(default)/documents:runAggregationQuery"
        answer = _ask(f"http://127.0.0.1:{self.firestore}/{path}", query)
        try:
            return int(answer[0]["result"]["aggregateFields"]["tickets"]["integerValue"])
        except (TypeError, LookupError, ValueError):
            return None


def _ask(url: str, body: object = None) -> Any:
    """Get, or with a body post, JSON of a local server; None if there is no such answer."""
    headers = {"Authorization": "Bearer owner", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - the URL is our own
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as response:  # noqa: S310
            return json.load(response)
    except (OSError, HTTPException, ValueError):
        return None


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10

    def do_OPTIONS(self) -> None:
        if self._is_for_us():
            self._answer(HTTPStatus.NO_CONTENT, None)

    def do_GET(self) -> None:
        if not self._is_for_us():
            return
        if self.path == "/effects":
            self._answer(HTTPStatus.OK, self.server.effects())
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is no such path"})

    def do_POST(self) -> None:
        if not self._is_for_us():
            return
        if self.headers.get(HEADER) != "1":
            self._answer(HTTPStatus.FORBIDDEN, {"error": f"{HEADER}: 1 is missing"})
        elif self.path == "/kill":
            killed = self.server.kill()
            print(f"control: killed {len(killed)} processes of the functions", flush=True)
            self._answer(HTTPStatus.OK, {"killed": len(killed)})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is no such path"})

    def log_message(self, _format: str, *args: object) -> None:
        """Say nothing: what it did is printed."""

    def _is_for_us(self) -> bool:
        """Refuse another host's name (DNS rebinding) and another site's page; tell which it is."""
        port = self.server.server_port
        hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in hosts and origin in (None, *self.server.origins):
            return True
        self._answer(HTTPStatus.FORBIDDEN, {"error": "this is for the local page only"})
        return False

    def _answer(self, status: HTTPStatus, value: object) -> None:
        body = b"" if status is HTTPStatus.NO_CONTENT else json.dumps(value).encode() + b"\n"
        self.send_response(status)
        origin = self.headers.get("Origin", "")
        if origin in self.server.origins:
            self.send_header("Access-Control-Allow-Origin", origin)
            self.send_header("Access-Control-Allow-Methods", "GET, POST")
            self.send_header("Access-Control-Allow-Headers", HEADER)
        self.send_header("Vary", "Origin")
        self.send_header("Cache-Control", "no-store")
        if body:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def program(hosting: int, firestore: int, announce: Path, payments: str | None) -> list[str]:
    """Return the command that runs the server, from the repository's folder."""
    return [
        *(sys.executable, "-m", "dev.control", "--announce", str(announce)),
        *("--hosting", str(hosting), "--firestore", str(firestore)),
        *(() if payments is None else ("--payments", payments)),
    ]


def main() -> int:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser(
        prog="python3 -m dev.control", description="Let the demo page kill local containers."
    )
    parser.add_argument("--announce", type=Path, required=True, help="the file that tells its URL")
    parser.add_argument("--hosting", type=int, required=True, help="the port of its pages")
    parser.add_argument("--firestore", type=int, required=True, help="the emulator's port")
    parser.add_argument("--payments", help="the URL of the payment server")
    options = parser.parse_args()
    mark = os.environ.get(processes.MARK_VARIABLE)
    if not mark or not LOCAL_PROJECT.startswith("demo-"):
        raise ProblemError("The control server runs beside a local stack only: use `make dev`.")
    with Server(mark, options.hosting, options.firestore, options.payments) as server:
        options.announce.parent.mkdir(parents=True, exist_ok=True)
        options.announce.write_text(json.dumps({"control": server.url}), "utf-8")
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(command.status(main))
