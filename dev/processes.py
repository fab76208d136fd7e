"""Which processes belong to a stack, and how they are ended without a trace.

firebase-tools starts Java and the discovery server in sessions of their own, and the functions'
servers outlive the shell that it starts them through. Neither parentage nor process groups hold
them all, but each inherits its environment: a mark in there, of a stack's own, does.

`python3 -m dev.processes MARK` is the stack's reaper. It ends the stack when its standard input
closes, which is when its launcher asks for it, or has died of anything at all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

MARK_VARIABLE = "AGENT_TURNS_STACK"

_GENTLE_SECONDS = 1.0
_UNFORCED_SECONDS = 4.0
_FORCED_SECONDS = 10.0
_POLL_SECONDS = 0.1


def marked(mark: str) -> list[int]:
    """Return the pids of the living processes that carry a stack's mark."""
    return carrying(MARK_VARIABLE, mark)


def carrying(variable: str, value: str) -> list[int]:
    """Return the pids of this user's living processes that were started with that variable."""
    assignment = f"{variable}={value}".encode()
    linux = Path("/proc/self/environ").exists()
    return _from_proc(assignment) if linux else _from_ps(assignment)


def dismiss_orphans(mark: str, leader: int) -> list[int]:
    """Ask the functions' servers that firebase-tools has let go to finish; return their pids.

    After an edit it ends the shell that it started a server through, and the server lives on with
    the old code. Asked gently, it finishes the streams that it still serves, and ends.
    """
    living = marked(mark)
    orphans = [
        pid
        for pid in living
        if pid != leader and _group(pid) == leader and _parent(pid) not in living
    ]
    for pid in orphans:
        _send(pid, signal.SIGTERM)
    return orphans


def end(mark: str, leader: int) -> bool:
    """End every process that carries the mark; tell whether none is left.

    The leader (firebase-tools) is asked first, so that it says goodbye and removes its files. It
    waits for open streams, so after a second the functions' servers, which lead no group, are
    killed; what still lives some seconds later is killed, too, until there is no more of it.
    """
    if leader in marked(mark):
        _send(leader, signal.SIGINT)
        if not _wait(lambda: leader not in marked(mark), _GENTLE_SECONDS):
            for pid in marked(mark):
                if pid != leader and _group(pid) == leader:
                    _send(pid, signal.SIGKILL)
            _wait(lambda: leader not in marked(mark), _UNFORCED_SECONDS)
    return _wait(lambda: _all_gone(mark), _FORCED_SECONDS)


def _all_gone(mark: str) -> bool:
    """Kill what is left and look twice: in the midst of its exec a process shows no environment."""
    if _kill_all(mark):
        return False
    time.sleep(_POLL_SECONDS)
    return not _kill_all(mark)


def _kill_all(mark: str) -> list[int]:
    pids = marked(mark)
    for pid in pids:
        _send(pid, signal.SIGKILL)
    return pids


def _from_proc(assignment: bytes) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # Gone meanwhile, or another user's.
            continue
        if assignment in environment.split(b"\0"):
            pids.append(int(entry.name))
    return pids


def _from_ps(assignment: bytes) -> list[int]:
    """Ask `ps`, as macOS has it: with -E it adds the environment to the command."""
    listing = subprocess.run(
        ["/bin/ps", "-axEww", "-o", "pid=,command="], capture_output=True, check=False
    ).stdout
    return [int(line.split()[0]) for line in listing.splitlines() if assignment in line.split()]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _parent(pid: int) -> int:
    """Return the parent's pid, 0 if the process is gone."""
    words = subprocess.run(
        ["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=False
    ).stdout.split()
    return int(words[0]) if words else 0


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait(reached: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _reap(mark: str) -> bool:
    """Wait for standard input to close, then end the stack; what was read is its leader's pid."""
    return end(mark, int(sys.stdin.read() or 0))


if __name__ == "__main__":
    sys.exit(0 if _reap(sys.argv[1]) else 1)
