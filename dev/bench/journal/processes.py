"""The processes that are measured: the Firestore emulator, and functions on functions-framework.

Each leads a process group of its own, which is ended by its id on the way out.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from dev import firestore_emulator, java
from dev.project import LOCAL_PROJECT, ROOT, ProblemError

MAIN = Path(__file__).with_name("main.py")
THREADS = 64
READY_SECONDS = 60.0
_PORTS = range(12_000, 32_000)
_POLL_SECONDS = 0.05
_LAST_WORDS = 4000


@dataclass(frozen=True)
class Server:
    """A process that answers on a port of 127.0.0.1."""

    port: int
    pid: int
    """It leads the process group of the same id."""

    @property
    def address(self) -> str:
        """As FIRESTORE_EMULATOR_HOST wants it."""
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        """End it and its workers at once, by SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def jar() -> Path:
    """Return the emulator's jar.

    Raises:
        ProblemError: this machine has none.
    """
    found = firestore_emulator.locate()
    if found is None:
        raise ProblemError(firestore_emulator.MISSING)
    return found


def emulator_version() -> str:
    """Return what the emulator's jar calls itself, such as "cloud-firestore-emulator 1.19.9"."""
    words = subprocess.run(
        [java.locate(), "-jar", jar(), "--version"], capture_output=True, text=True, check=True
    )
    return words.stdout.strip().splitlines()[-1]


@contextlib.contextmanager
def emulator() -> Iterator[Server]:
    """Run the Firestore emulator on a free port."""
    port = _free_port()
    command = [
        *(str(java.locate()), "-jar", str(jar())),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    with _running("the Firestore emulator", command, {}, port, "/") as server:
        yield server


@contextlib.contextmanager
def function(name: str, storage: str, *, lease_seconds: float = 9) -> Iterator[Server]:
    """Serve one function of the benchmark's `main`; `storage` is its FIRESTORE_EMULATOR_HOST."""
    port = _free_port()
    command = [
        *(sys.executable, "-m", "functions_framework"),
        *("--target", name, "--source", str(MAIN)),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    settings = {
        "PYTHONPATH": str(ROOT),
        "FIRESTORE_EMULATOR_HOST": storage,
        "GCLOUD_PROJECT": LOCAL_PROJECT,
        "FUNCTIONS_EMULATOR": "true",
        "THREADS": str(THREADS),
        "LEASE_SECONDS": str(lease_seconds),
        # Empty means the default, whatever the caller of the benchmark has set.
        "FLUSH_SECONDS": "",
        "HEARTBEAT_SECONDS": "",
    }
    with _running(name, command, settings, port, "/__/health") as server:
        yield server


@contextlib.contextmanager
def _running(
    name: str, command: Sequence[str], environment: Mapping[str, str], port: int, path: str
) -> Iterator[Server]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,  # the first place that its modules are looked for in
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        server = Server(port, process.pid)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not _answers(port, path):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    words = output.read()[-_LAST_WORDS:].decode(errors="replace")
                    raise RuntimeError(f"{name} did not start; its last words:\n{words}")
                time.sleep(_POLL_SECONDS)
            yield server
        finally:
            server.kill()
            process.wait()


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
            return True
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return True
    except (OSError, HTTPException):
        return False


def _free_port() -> int:
    """Return a port below those that the system gives away: nobody gets it in the meantime."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - no secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
