"""Real processes to measure and to kill: the Firestore emulator, functions-framework servers.

Each leads a process group of its own, which is ended by its id on the way out.
"""

from __future__ import annotations

import contextlib
import os
import signal
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
from dev.ports import free_port
from dev.project import LOCAL_PROJECT, ROOT, ProblemError

_READY_SECONDS = 60.0
_POLL_SECONDS = 0.05
_LAST_WORDS = 4000
_NOT_OURS = ("K_SERVICE", "K_REVISION", "K_CONFIGURATION")
"""Variables by which the functions would take this machine for a deployment."""


@dataclass(frozen=True)
class Container:
    """A process that answers on a port of 127.0.0.1."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """As FIRESTORE_EMULATOR_HOST wants it."""
        return f"127.0.0.1:{self.port}"

    def kill(self) -> float:
        """End it and its workers by SIGKILL; return when that was sent, once they are dead."""
        at = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return at


def jar() -> Path:
    """Return the emulator's jar.

    Raises:
        ProblemError: this machine has none.
    """
    found = firestore_emulator.locate()
    if found is None:
        raise ProblemError(firestore_emulator.MISSING)
    return found


@contextlib.contextmanager
def emulator() -> Iterator[Container]:
    """Run the official Firestore emulator on a free port.

    Raises:
        ProblemError: this machine has none, or no Java for it.
    """
    port = free_port()
    command = [str(java.locate()), "-jar", str(jar()), "--host", "127.0.0.1", "--port", str(port)]
    with _running("the Firestore emulator", command, {}, port, "/") as container:
        yield container


@contextlib.contextmanager
def function(
    target: str, storage: str, settings: Mapping[str, str], source: Path = ROOT / "main.py"
) -> Iterator[Container]:
    """Serve one function of `source`; `storage` is its FIRESTORE_EMULATOR_HOST."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "functions_framework"),
        *("--target", target, "--source", str(source)),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    environment = {
        "PYTHONPATH": str(ROOT),
        "FIRESTORE_EMULATOR_HOST": storage,
        "GCLOUD_PROJECT": LOCAL_PROJECT,
        "FUNCTIONS_EMULATOR": "true",
        "REQUIRE_AUTH": "false",
        "THREADS": "40",
        **settings,
    }
    with _running(target, command, environment, port, "/__/health") as container:
        yield container


@contextlib.contextmanager
def _running(
    name: str, command: Sequence[str], environment: Mapping[str, str], port: int, path: str
) -> Iterator[Container]:
    inherited = {key: value for key, value in os.environ.items() if key not in _NOT_OURS}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,  # the first place that its modules are looked for in
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        container = Container(port, process)
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not _answers(port, path):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    words = output.read()[-_LAST_WORDS:].decode(errors="replace")
                    raise RuntimeError(f"{name} did not start; its last words:\n{words}")
                time.sleep(_POLL_SECONDS)
            yield container
        finally:
            container.kill()


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
            return True
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return True
    except (OSError, HTTPException):
        return False
