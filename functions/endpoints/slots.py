"""How many streams this container serves at once, so that short calls are always answered."""

from __future__ import annotations

import threading
from collections.abc import Callable

from functions.errors import AtCapacity, Draining


class Slots:
    """Counts open streams. Thread safe."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._open = 0
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> Callable[[], None]:
        """Take a slot; the returned function gives it back, once however often it is called.

        Raises AtCapacity when none is free, Draining once they are closed.
        """
        with self._lock:
            if self._closed:
                raise Draining("this container is about to end; another one serves you")
            if self._open >= self._cap:
                raise AtCapacity("this container has as many open streams as it may")
            self._open += 1
        released = threading.Event()

        def release() -> None:
            with self._lock:
                if not released.is_set():
                    released.set()
                    self._open -= 1

        return release

    @property
    def open(self) -> int:
        """How many are taken."""
        return self._open

    def close(self) -> None:
        """Give no more of them away."""
        with self._lock:
            self._closed = True
