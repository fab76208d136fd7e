"""Everything a developer of this repository runs: set-up, the local stack, the checks.

Run it through `make`. It needs only a Python of 3.9 or newer and its standard library, for it runs
before the virtual environment exists; nothing here is deployed.

What lives here:
    setup              makes `venv` and installs what is pinned
    launch             `make dev`: the Emulator Suite, ready, with lines to paste
    verify             `make verify`: format, lint, types and tests
    suite              an Emulator Suite on free ports, for tests
    stack              one running firebase-tools and every process that it started
    processes          which processes those are, and how they are ended
    python, node, java what the machine has, and what to do when it lacks it
    firestore_emulator where the Firestore emulator's jar lies
    token              a local App Check token for curl
    project            folders, names and ports that the others go by
    progress           a slow command that a person sees living
    command            how each program ends
"""

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - older ones get these words, not a traceback
    sys.exit(
        "This needs Python 3.9 or newer to set itself up: run it as `make PYTHON=python3.11 ...`."
    )
