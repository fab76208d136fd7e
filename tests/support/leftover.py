"""What a test of this process leaves behind: agents that wait for ever, and their threads.

They end with their test. One that went on would use the storage of the next one, which may count
every call.
"""

from __future__ import annotations

import threading

from tests.support.patience import PATIENCE_SECONDS, wait_until

OURS = ("journal", "lease-renewal", "owner", "release", "tool-", "transaction")
"""How the names of the package's threads begin, but for those that are never waited for."""

_over = threading.Event()


def stay() -> None:
    """Wait, as an agent or a tool, until the test is over."""
    _over.wait(PATIENCE_SECONDS)


def begin() -> None:
    """A test begins: who stays is kept."""
    _over.clear()


def end() -> None:
    """The test is over: returns once no thread of the package is left, or raises TooSlowError."""
    _over.set()
    wait_until(lambda: not _threads())


def _threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith(OURS)]
