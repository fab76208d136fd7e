"""`make dev`: the local stack, set up, started and ready, with lines to paste."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from types import FrameType

from dev import control, firestore_emulator, page, payments, setup
from dev.command import status
from dev.project import (
    EMULATORS,
    LOCAL_PROJECT,
    PAYMENTS_URL,
    ROOT,
    STREAMS,
    TICKETS,
    ProblemError,
    Project,
    function_url,
    read,
)
from dev.stack import Stack, answer

_POLL_SECONDS = 0.5
_REPORT_SECONDS = 15.0
_TIDY_SECONDS = 5.0
_NOT_LOADED = """\
The functions could not be loaded. The reason is in the Python error further up: often a setting in
.env, .env.demo-agent-turns or .env.local, or a typo. Mend it, and start again."""
_PROMPT = "Open a ticket, look up the order (query=20) and charge me 19 dollars"
_REFUND = "Refund me 19 dollars"
_REFUND_STEP = 2
"""Its plan is step 1."""


def main() -> int:
    """Run the stack until Ctrl-C, SIGTERM or the end of the terminal; return an exit status."""
    setup.ensure()
    firestore_emulator.ensure()
    page.build()
    project = read()
    _refuse_taken_ports(project)
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    with Stack(cwd=ROOT) as stack:
        port = project.payments_port
        paying = None if port is None else stack.start_beside(payments.program(port))
        paid = None if port is None else f"http://127.0.0.1:{port}"
        hosting, firestore = project.port("hosting"), project.port("firestore")
        stack.start_beside(control.program(hosting, firestore, page.LOCAL, paid))
        return _watch(stack, project, paying, stop)


def _watch(
    stack: Stack,
    project: Project,
    paying: subprocess.Popen[bytes] | None,
    stop: threading.Event,
) -> int:
    """Say when the functions answer, then wait for the end; return an exit status."""
    threading.Thread(target=_announce, args=(project, stop), daemon=True).start()
    had_terminal = sys.stdout.isatty()
    tidied = time.monotonic()
    # A closed terminal sends SIGHUP to the shell, and make passes none on: look at it, too.
    while not stop.wait(_POLL_SECONDS) and sys.stdout.isatty() == had_terminal:
        if stack.ended() is not None:
            stop.set()
            raise ProblemError("firebase-tools ended by itself; its last words are above.")
        if time.monotonic() - tidied > _TIDY_SECONDS:
            stack.dismiss_orphans()
            tidied = time.monotonic()
        if paying is not None and paying.poll() is not None:
            stop.set()
            raise ProblemError("The payment server ended by itself; its last words are above.")
    with contextlib.suppress(OSError):  # The terminal may be gone.
        print("\nEnding everything that was started …", flush=True)
    return 0


def _announce(project: Project, stop: threading.Event) -> None:
    """Wait until each function answers, then print the lines to paste."""
    port = project.port("functions")
    reported, said = time.monotonic(), False
    for function in STREAMS:
        while (lacking := answer(function, port)) is not None:
            if stop.wait(_POLL_SECONDS):
                return
            if time.monotonic() - reported > _REPORT_SECONDS and not said:
                reported = time.monotonic()
                said = "does not exist" in lacking  # once: it would push the reason out of sight
                print(
                    _NOT_LOADED if said else f"Still waiting for {function}: {lacking}", flush=True
                )
    _wake(project)
    turn, other = (str(uuid.uuid4()) for _ in range(2))
    print(lines_to_paste(project, turn, other), flush=True)


def _wake(project: Project) -> None:
    """Commit nothing, for which the Firestore emulator loads itself: on a slow machine that takes
    longer than a first turn would wait for it.
    """
    documents = f"projects/{LOCAL_PROJECT}/databases/(default)/documents"
    request = urllib.request.Request(
        f"http://127.0.0.1:{project.port('firestore')}/v1/{documents}:commit",
        data=b'{"writes": []}',
        headers={"Authorization": "Bearer owner", "Content-Type": "application/json"},
    )
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as answered:  # noqa: S310 - the emulator's own
        answered.read()


def lines_to_paste(project: Project, turn: str, other: str) -> str:
    """Return what a newcomer pastes into a second terminal: the story, an approval, a stop.

    Args:
        project: says which ports there are, and whether there is a payment server.
        turn: the id of the turn of the story.
        other: the id of the turn that waits for a person.
    """
    functions = project.port("functions")

    def curl(function: str, name: str, more: str = "") -> str:
        tokens = (
            '-H "X-Firebase-AppCheck: $(python3 -m dev.token)"'
            ' -H "Authorization: Bearer $(python3 -m dev.token --uid me)"'
        )
        url = function_url(function, functions)
        return f"  curl -N {url} {tokens} -H 'X-Stream-Turn-Id: {name}' {more}".rstrip()

    def body(**fields: object) -> str:
        return f"-H 'Content-Type: application/json' -d '{json.dumps(fields)}'"

    documents = f"127.0.0.1:{project.port('firestore')}/v1/projects/{LOCAL_PROJECT}"
    tickets = f"'http://{documents}/databases/(default)/documents/{TICKETS}'"
    counts = [f"  curl -H 'Authorization: Bearer owner' {tickets}"]
    if project.payments_port is not None:
        counts.append(f"  curl http://127.0.0.1:{project.payments_port}/effects")
    effects = "\n\n".join(counts)
    return f"""
Ready. Open the page: http://127.0.0.1:{project.port("hosting")}

Or, in another terminal, in this folder, stream a turn that opens a ticket, looks up an order for
20 silent seconds, and charges:

{curl("start_turn", turn, body(prompt=_PROMPT))}

Cut it with Ctrl-C in the silence, and get the rest of it; replace 3 by the last id you saw:

{curl("resume_turn", turn, "-H 'Last-Event-ID: 3'")}

See one ticket and one charge, whatever happened:

{effects}

Stop it early:

{curl("cancel_turn", turn, "-X POST")}

Ask for a refund, which waits for a person; then approve it, or put "deny":

{curl("start_turn", other, body(prompt=_REFUND))}

{curl("run_tool_step", other, body(step=_REFUND_STEP, decision="approve"))}

The same id is the same turn; put another one for a new turn. Edits to main.py and functions/ are
loaded a second after you save. Ctrl-C here ends everything.
"""


def _refuse_taken_ports(project: Project) -> None:
    """Raise ProblemError if something listens on a port that the stack needs."""
    needed = [
        (project.port(name), f"the {name} emulator", f"`emulators.{name}.port` in firebase.json")
        for name in EMULATORS
    ]
    if project.payments_port is not None:
        where = f"`{PAYMENTS_URL}` in .env.{LOCAL_PROJECT}"
        needed.append((project.payments_port, "the payment server", where))
    for port, who, where in needed:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise ProblemError(
                    f"Port {port} is taken, and {who} needs it. Is another `make dev` running?"
                    f" End what uses the port, or change {where}."
                )


if __name__ == "__main__":
    sys.exit(status(main))
