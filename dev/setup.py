"""`make setup`: all that the repository needs, pinned, inside its own folders.

Takes a moment when nothing has changed, so every other command begins with it.
"""

from __future__ import annotations

import fcntl
import os
import sys

from dev import command, firestore_emulator, node, python
from dev.project import DEV, read


def ensure() -> None:
    """Make `venv` and install the Node packages if they are not as pinned; one process at a time.

    Raises:
        ProblemError: something is missing on the machine, or an installation failed.
    """
    folder = os.open(DEV, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        python.ensure_venv(read().python_version)
        node.ensure_all()
    finally:
        os.close(folder)


def main() -> int:
    """Set up all of it; return an exit status."""
    ensure()
    firestore_emulator.ensure()
    print("Set up. Next: make dev")
    return 0


if __name__ == "__main__":
    sys.exit(command.status(main))
