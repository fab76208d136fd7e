"""Everything a developer of this repository runs: set-up, the local stack, the checks.

Run it through `make`. It needs only a Python of 3.9 or newer and its standard library, for it runs
before the virtual environment exists; nothing here is deployed.

`make` runs these:
    setup              makes `venv` and installs what is pinned
    launch             `make dev`: the Emulator Suite, ready, with lines to paste
    verify             `make verify`: format, lint, types and tests
and these are run by themselves, as `python3 -m dev.NAME`, some by the Python of `venv`:
    token              a local App Check token, or a user's ID token, for curl
    merge_indexes      our indexes into the file of a project that has its own
    page               the demo page's bundle
    survive            a socket cut and a container killed, with every byte accounted for
    kills              containers killed at random, with every effect counted
    bench              what the package, and the client, take
    fresh              a clone on a machine that has nothing
They stand on:
    suite              an Emulator Suite on free ports, for tests
    stack              one running firebase-tools and every process that it started
    processes          which processes those are, and how they are ended
    containers         the Firestore emulator, and functions, as processes to measure and to kill
    ports              which are free
    payments, control  the servers beside `make dev`: of payments, and of the page's buttons
    python, node, java, browser
                       what the machine has, and what to do when it lacks it
    firestore_emulator where the Firestore emulator's jar lies
    project            folders, names and ports that the others go by
    progress           a slow command that a person sees living
    command            how each program ends
"""

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - older ones get these words, not a traceback
    sys.exit(
        "This needs Python 3.9 or newer to set itself up: run it as `make PYTHON=python3.11 ...`."
    )
