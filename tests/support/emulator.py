"""The official Firestore emulator as a process of the test session."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Self

from dev.ports import free_port

_PATIENCE_SECONDS = 60.0
"""Far more than any machine needs."""


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until `process` listens. Raises RuntimeError when it ends or takes too long."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the process ended with {process.returncode}")
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), _PATIENCE_SECONDS),
        ):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after {_PATIENCE_SECONDS:g} s")


class Emulator:
    """A context manager; `address` is what FIRESTORE_EMULATOR_HOST is set to."""

    def __init__(self, java: Path, jar: Path) -> None:
        self._command = [str(java), "-jar", str(jar)]
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*self._command, "--host", "127.0.0.1", "--port", str(self._port)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_for_port(self._port, self._process)
        self._wake()
        return self

    def _wake(self) -> None:
        """Make the first write, for which Java loads itself: on a busy machine that takes longer
        than the functions wait for an answer.
        """
        path = "projects/demo-agent-turns/databases/(default)/documents/warm/up"
        request = urllib.request.Request(
            f"http://{self.address}/v1/{path}",
            method="PATCH",
            data=b"{}",
            headers={"Authorization": "Bearer owner", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            answer.read()

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
