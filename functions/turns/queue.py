"""The queue of looks: tasks of Cloud Tasks that have `finishturn` look at a turn later.

F1: whoever creates a turn, or decides a step of one, schedules a look at it, beside the stream. A
container that is told to end does so before it ends.
F4: where no queue can be reached, everything else works: nothing is raised, one warning a while.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from functions import logs
from functions.errors import QueueUnavailable
from functions.settings import REGION, Settings

FUNCTION = "finishturn"
"""No underscore: the queue is named after the function, and the name of a queue may have none."""

REQUEST_SECONDS = 1800
"""The longest that Cloud Tasks waits for a task's answer, and the platform for a task function."""
LONGEST_SECONDS = 28 * 24 * 3600
"""Cloud Tasks schedules up to 30 days ahead."""

_AT_ONCE = 4
"""Threads of one container that schedule. A queue that hangs holds up so many, and no turn."""
_MOST_WAITING = 1000
"""Looks that wait for one of them; a container runs far fewer turns at once."""
_POLL_SECONDS = 0.02
_QUIET_SECONDS = 300.0
"""After a failure: how long no warning is written."""


class Queue:
    """Schedules looks at turns. Thread safe. Making one does no work."""

    def __init__(self, settings: Settings) -> None:
        self._project = settings.project
        self._first_seconds = settings.look_seconds
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque()
        """Turns to schedule a first look at, each with the log fields of who asked for it."""
        self._threads = 0
        self._waiting_lock = threading.Lock()
        self._lock = threading.Lock()
        self._app: Any = None
        self._tasks: Any = None
        self._quiet_until = 0.0

    def look_later(self, key: str) -> None:
        """Schedule the first look at a turn, on another thread; returns at once (F1, F4)."""
        with self._waiting_lock:
            full = len(self._waiting) >= _MOST_WAITING
            if not full:
                self._waiting.append((key, logs.fields()))
            needed = self._threads < _AT_ONCE
            self._threads += needed
        if full:
            self._warn("busy")
        if not needed:
            return
        try:
            threading.Thread(target=self._work, name="schedule", daemon=True).start()
        except RuntimeError:
            with self._waiting_lock:
                self._threads -= 1
            self._warn("no thread")

    def settle(self, *, within_seconds: float) -> None:
        """Return once all first looks are scheduled, or given up, or after so long."""
        until = time.monotonic() + within_seconds
        while self._threads and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)

    def _work(self) -> None:
        """Schedule what waits, until nothing does."""
        while True:
            with self._waiting_lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                key, fields = self._waiting.popleft()
            logs.begin(fields)
            try:
                self.look(key, self._first_seconds)
            except QueueUnavailable as error:
                self._warn(error.cause)
            except Exception:  # noqa: BLE001 - the thread's edge: the turn goes on without a queue
                logs.error("a look could not be scheduled")

    def look(self, key: str, seconds: float) -> None:
        """Schedule a look at a turn in so many seconds. Raises QueueUnavailable."""
        from firebase_admin.exceptions import FirebaseError
        from google.auth.exceptions import GoogleAuthError

        wait = math.ceil(min(max(seconds, 0), LONGEST_SECONDS))
        try:
            from firebase_admin.functions import TaskOptions

            # No name: an owner schedules once, a look twice does no harm, and names make it slow.
            self._queue().enqueue(
                {"data": {"turn": key, "due": math.ceil(time.time()) + wait}},
                TaskOptions(schedule_delay_seconds=wait, dispatch_deadline_seconds=REQUEST_SECONDS),
            )
        except (FirebaseError, GoogleAuthError, ValueError) as error:
            raise QueueUnavailable(type(error).__name__) from error

    def _queue(self) -> Any:
        """The client's queue, made at first use. Raises QueueUnavailable on an Emulator Suite
        without Tasks: a stand-in must not reach the real one.
        """
        if os.environ.get("FUNCTIONS_EMULATOR") == "true" and not os.environ.get(
            "CLOUD_TASKS_EMULATOR_HOST"
        ):
            raise QueueUnavailable("no Tasks emulator")
        with self._lock:
            if self._tasks is None:
                import firebase_admin
                from firebase_admin import functions

                self._app = self._app or firebase_admin.initialize_app(
                    options={"projectId": self._project}, name="agent-turns-queue"
                )
                name = f"locations/{REGION}/functions/{FUNCTION}"
                self._tasks = functions.task_queue(name, app=self._app)
            return self._tasks

    def _warn(self, cause: str) -> None:
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
        logs.warning("turns are not scheduled to finish without a client", cause=cause)
