"""One event loop for all turns of a container: HTTP connections to a model are kept and shared.

It runs on a thread of its own, started with the first turn. Nothing that waits for Firestore may
run on it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from anyio.to_thread import current_default_thread_limiter

T = TypeVar("T")

MOST_THREADS = 1024
"""For what waits beside the loop: a turn that waits for its tools has one, a sync tool another.
Bounded by the turns of the container long before; Python's own default is a handful."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(main: Coroutine[Any, Any, T], wait: Callable[[Future[T]], T]) -> T:
    """Run `main` on the loop and `wait` for it; what it returns or raises, BaseExceptions included.

    What `wait` raises before that cancels `main`.
    """
    future = asyncio.run_coroutine_threadsafe(_watched(main), running())
    try:
        return wait(future)
    finally:
        future.cancel()


async def _watched(main: Coroutine[Any, Any, T]) -> T:
    """`main`. What it raises after it was cancelled is nobody's any more: looked at, so that
    asyncio does not print it.
    """
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await main


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
    loop.set_default_executor(ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="agents"))
    loop.run_until_complete(_let_sync_tools_run())
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue


async def _let_sync_tools_run() -> None:
    """A tool that waits for a thread would be running, as far as its time limit goes."""
    current_default_thread_limiter().total_tokens = MOST_THREADS
