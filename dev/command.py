"""How every program here ends: with an exit status, and plain words where a person can help."""

from __future__ import annotations

import sys
from collections.abc import Callable

from dev.project import ProblemError


def status(command: Callable[[], int]) -> int:
    """Run a command; return its exit status, 1 after the words of a problem, 130 for Ctrl-C."""
    try:
        return command()
    except ProblemError as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
