"""Noticing that the platform ends this container: SIGTERM, and SIGKILL ten seconds later.

functions-framework serves with gunicorn, whose worker takes SIGTERM itself: it accepts no more
connections and waits for the open ones, which here are streams that would not end. Its handler is
set after `main` is imported, and only a process's main thread, which is gunicorn's, may set
another. But every thread may look which one is set. It is a method of the worker, and the worker
says in `alive` whether it was told to stop: a thread looks at that.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from functions import logs

DRAIN_SECONDS = 8.0
"""All that is done after SIGTERM is done within this; the platform gives 10 s."""
POLL_SECONDS = 0.1


class Shutdown:
    """Calls `stopping` once, on a thread of its own, when this process was told to end."""

    def __init__(self, stopping: Callable[[], None]) -> None:
        self._stopping = stopping
        self._lock = threading.Lock()
        self._watched = False

    def watch(self) -> None:
        """Begin to watch, at the first call; later ones do nothing.

        Not on import: the process that imports `main` forks the one that serves.
        """
        with self._lock:
            watched, self._watched = self._watched, True
        if watched:
            return
        worker = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        if hasattr(worker, "alive"):
            # No daemon: a process that ends waits for it, so the turns are released first.
            threading.Thread(target=self._wait, args=(worker,), name="shutdown").start()
        else:
            logs.info("not served by gunicorn: SIGTERM ends this process at once")

    def _wait(self, worker: Any) -> None:
        main = threading.main_thread()
        while worker.alive and main.is_alive():
            time.sleep(POLL_SECONDS)
        self._stopping()
