"""A queue of Cloud Tasks that keeps what it is given: what was scheduled, and for when."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.patience import PATIENCE_SECONDS


@dataclass(frozen=True)
class Task:
    """One task as it was created."""

    path: str
    body: Any
    """What the function will be sent."""
    at: float
    """When, in seconds since 1970."""
    deadline: str

    @property
    def turn(self) -> str:
        """The key of the turn to look at."""
        return str(self.body["data"]["turn"])


class TaskQueue:
    """A context manager; `address` is what CLOUD_TASKS_EMULATOR_HOST is set to."""

    def __init__(self, *, status: int = 200, hold: threading.Event | None = None) -> None:
        """`status`: what it answers; with any but 200 it keeps nothing. Nothing is answered before
        `hold` is set.
        """
        self._tasks: list[Task] = []
        self._changed = threading.Condition()
        self.asked = 0
        """How often a task was offered."""
        queue = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if hold is not None:
                    hold.wait()
                queue._take(self.path, body["task"], keep=status == 200)
                name = f"/{self.path.strip('/')}/1"
                answer = json.dumps({"task": {"name": name}}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def tasks(self, count: int) -> list[Task]:
        """The tasks once there are `count`; AssertionError when there are not in time."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self._tasks) >= count, PATIENCE_SECONDS)
            assert came, self._tasks
            return list(self._tasks)

    def _take(self, path: str, task: dict[str, Any], *, keep: bool) -> None:
        body = json.loads(base64.b64decode(task["httpRequest"]["body"]))
        at = datetime.fromisoformat(task["scheduleTime"]).timestamp()
        with self._changed:
            self.asked += 1
            if keep:
                self._tasks.append(Task(path, body, at, task["dispatchDeadline"]))
            self._changed.notify_all()
