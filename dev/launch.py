"""`make dev`: the local stack, set up, started and ready, with lines to paste."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
import time
import uuid
from types import FrameType

from dev import firestore_emulator, setup
from dev.command import status
from dev.project import EMULATORS, ROOT, STREAMS, ProblemError, Project, function_url, read
from dev.stack import Stack, answer

_POLL_SECONDS = 0.5
_REPORT_SECONDS = 15.0
_PROMPT = '{"prompt":"Tell me about durable turns"}'


def main() -> int:
    """Run the stack until Ctrl-C, SIGTERM or the end of the terminal; return an exit status."""
    setup.ensure()
    firestore_emulator.ensure()
    project = read()
    _refuse_taken_ports(project)
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    with Stack(cwd=ROOT) as stack:
        return _watch(stack, project, stop)


def _watch(stack: Stack, project: Project, stop: threading.Event) -> int:
    """Say when the functions answer, then wait for the end; return an exit status."""
    port = project.port("functions")
    threading.Thread(target=_announce, args=(port, stop), daemon=True).start()
    had_terminal = sys.stdout.isatty()
    # A closed terminal sends SIGHUP to the shell, and make passes none on: look at it, too.
    while not stop.wait(_POLL_SECONDS) and sys.stdout.isatty() == had_terminal:
        if stack.ended() is not None:
            stop.set()
            raise ProblemError("firebase-tools ended by itself; its last words are above.")
    with contextlib.suppress(OSError):  # The terminal may be gone.
        print("\nEnding everything that was started …", flush=True)
    return 0


def _announce(port: int, stop: threading.Event) -> None:
    """Wait until each function answers, then print the lines to paste."""
    reported = time.monotonic()
    for function in STREAMS:
        while (lacking := answer(function, port)) is not None:
            if stop.wait(_POLL_SECONDS):
                return
            if time.monotonic() - reported > _REPORT_SECONDS:
                reported = time.monotonic()
                print(f"Still waiting for {function}: {lacking}", flush=True)
    print(lines_to_paste(port, str(uuid.uuid4())), flush=True)


def lines_to_paste(port: int, turn: str) -> str:
    """Return what a newcomer pastes into a second terminal: a line to stream, one to resume."""
    start, resume = (function_url(name, port) for name in STREAMS)
    fresh = '-H "X-Firebase-AppCheck: $(python3 -m dev.token)"'
    named = f"-H 'X-Stream-Turn-Id: {turn}'"
    return f"""
Ready. In another terminal, in this folder, stream a turn:

  curl -N {start} {fresh} {named} -H 'Content-Type: application/json' -d '{_PROMPT}'

Cut it with Ctrl-C where you like, and get the rest of it, here from event 21 on:

  curl -N {resume} {fresh} {named} -H 'Last-Event-ID: 20'

The same id is the same turn; put another one for a new turn. Edits to main.py and functions/ are
loaded a second after you save. Ctrl-C here ends everything.
"""


def _refuse_taken_ports(project: Project) -> None:
    """Raise ProblemError if something listens on a port that the stack needs."""
    for emulator in EMULATORS:
        port = project.port(emulator)
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise ProblemError(
                    f"Port {port} is taken, and the {emulator} emulator needs it. Is another"
                    " `make dev` running? End what uses the port, or change"
                    f" `emulators.{emulator}.port` in firebase.json."
                )


if __name__ == "__main__":
    sys.exit(status(main))
