"""One event loop for all turns of a container: HTTP connections to a model are kept and shared.

It runs on a thread of its own, started with the first turn. Nothing that waits for Firestore may
run on it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CHECK_SECONDS = 0.5
"""How soon an owner notices, in the midst of a silent model call, that its lease is lost."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(main: Coroutine[Any, Any, T], check: Callable[[], None]) -> T:
    """Run `main` on the loop and wait for it; what it returns or raises, a BaseException included.

    `check` is called every now and then: what it raises cancels `main`, and is raised at once.
    """
    future = asyncio.run_coroutine_threadsafe(main, running())
    try:
        while True:
            try:
                return future.result(CHECK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                check()
    finally:
        future.cancel()


def running() -> asyncio.AbstractEventLoop:
    """The loop, started if need be."""
    global _loop  # noqa: PLW0603 - one for each process, as its doc says
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(_loop,), name="agents", daemon=True).start()
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run for ever: an agent that raises SystemExit ends its own task, not the others'."""
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue
