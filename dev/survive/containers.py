"""The processes of the run: the Firestore emulator, and `main.py` on functions-framework.

Each leads a process group of its own, which is ended by its id on the way out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev import firestore_emulator, java
from dev.project import LOCAL_PROJECT, ROOT, ProblemError

_READY_SECONDS = 60.0
_POLL_SECONDS = 0.05
_LAST_WORDS = 4000
_NOT_OURS = ("K_SERVICE", "K_REVISION", "K_CONFIGURATION")
"""Variables by which the functions would take this machine for a deployment."""


@dataclass(frozen=True)
class Container:
    """A process that listens on a port of 127.0.0.1."""

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


@contextlib.contextmanager
def emulator() -> Iterator[Container]:
    """Run the official Firestore emulator.

    Raises:
        ProblemError: this machine has none, or no Java for it.
    """
    jar = firestore_emulator.locate()
    if jar is None:
        raise ProblemError(firestore_emulator.MISSING)
    port = _free_port()
    command = [str(java.locate()), "-jar", str(jar), "--host", "127.0.0.1", "--port", str(port)]
    with _running("the Firestore emulator", command, {}, port) as container:
        yield container


@contextlib.contextmanager
def function(
    target: str, storage: str, settings: Mapping[str, str], source: Path = ROOT / "main.py"
) -> Iterator[Container]:
    """Serve one function of `source`; `storage` is its FIRESTORE_EMULATOR_HOST."""
    port = _free_port()
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
        "THREADS": "40",
        **settings,
    }
    with _running(target, command, environment, port) as container:
        yield container


@contextlib.contextmanager
def _running(
    name: str, command: Sequence[str], environment: Mapping[str, str], port: int
) -> Iterator[Container]:
    inherited = {key: value for key, value in os.environ.items() if key not in _NOT_OURS}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        container = Container(port, process)
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    words = output.read()[-_LAST_WORDS:].decode(errors="replace")
                    raise RuntimeError(f"{name} did not start; its last words:\n{words}")
                time.sleep(_POLL_SECONDS)
            yield container
        finally:
            container.kill()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
