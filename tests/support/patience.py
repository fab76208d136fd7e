"""Waiting in tests: for what must happen, never for a time in which it should have happened."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
"""Far more than any machine needs: a test that ends here found a fault, not a busy machine."""


class TooSlowError(AssertionError):
    """What was waited for did not happen."""


def wait_until(reached: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Return once `reached()`; raises TooSlowError after those seconds."""
    until = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > until:
            raise TooSlowError(f"not within {seconds:g} s")
        time.sleep(0.01)
