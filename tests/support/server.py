"""One deployed function as a real functions-framework process, to be killed and frozen."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from dev.ports import free_port
from tests.support.emulator import wait_for_port
from tests.support.patience import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
APP = ROOT / "tests" / "support" / "app.py"
KEPT_SECONDS = "20"
"""A lease that no machine is too busy to keep: a test that needs it to be over calls `lapse`."""
SOON_SECONDS = "9"
"""A lease that a test can wait for, and that a process keeps which stands still for 5 s: it is
renewed every third of it. As deployed.
"""


def whole_lines(log: int) -> str:
    """The whole lines in an open file that processes still write to.

    Their place in it is the file's own position: to seek would have them write over what is there.
    """
    printed = os.pread(log, os.fstat(log).st_size, 0)
    return printed[: printed.rfind(b"\n") + 1].decode()


class FunctionServer:
    """A context manager. Its processes form one group: killed and frozen together.

    `environ` may name another `SOURCE` than the scripted agent's, and a `HOST` to listen on.
    """

    def __init__(self, target: str, storage: str, project: str, environ: Mapping[str, str]) -> None:
        self._source = environ.get("SOURCE", str(APP))
        self._host = environ.get("HOST", "127.0.0.1")
        self._target = target
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._environ = {
            **{k: v for k, v in os.environ.items() if k not in {"THREADS", "K_SERVICE"}},
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "FIRESTORE_EMULATOR_HOST": storage,
            "GCLOUD_PROJECT": project,
            "FUNCTIONS_EMULATOR": "true",
            # Nobody listens there: unsigned ID tokens are taken without asking.
            "FIREBASE_AUTH_EMULATOR_HOST": "127.0.0.1:1",
            "REQUIRE_AUTH": "false",
            "THREADS": "40",
            "LEASE_SECONDS": KEPT_SECONDS,
            "FLUSH_SECONDS": "0.1",
            "ALLOWED_ORIGINS": "http://127.0.0.1:5000",
            **environ,
        }

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        command = ["--target", self._target, "--source", self._source, "--port", str(self.port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "functions_framework", *command, "--host", self._host],
            env=self._environ,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_for_port(self.port, self._process)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{self.output()}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def kill(self) -> float:
        """SIGKILL, as the platform does to a container; the moment it was sent."""
        at = time.monotonic()
        self._signal(signal.SIGKILL)
        self._process.wait()
        return at

    def terminate(self) -> None:
        """SIGTERM to the server's first process, as the platform does before SIGKILL."""
        self._process.terminate()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit status, once it has ended by itself; AssertionError if it does not."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.output()}") from None

    def freeze(self) -> None:
        """SIGSTOP: the container gets no CPU. Returns once all of its threads have stopped.

        One of them has to run to stop the others, and on a busy machine that may take a while.
        """
        self._signal(signal.SIGSTOP)
        wait_until(lambda: all(state in "TZX" for state in self._thread_states()))

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def output(self) -> str:
        """All it printed so far, in whole lines."""
        return whole_lines(self._log.fileno())

    def log_lines(self) -> list[dict[str, Any]]:
        """Its structured log lines so far; AssertionError for a line that is not one."""
        lines = []
        for line in self.output().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise AssertionError(f"not a structured log line: {line!r}") from error
        return lines

    def line(self, **fields: object) -> dict[str, Any]:
        """Its first log line with these fields, once it is there."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [line for line in self.log_lines() if fields.items() <= line.items()]
            return bool(found)

        wait_until(there)
        return found[0]

    def memory_bytes(self) -> int:
        """Resident memory of all its processes."""
        pages = sum(int(fields[21]) for fields in self._stats("[0-9]*/stat"))
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _thread_states(self) -> list[str]:
        return [fields[0] for fields in self._stats("[0-9]*/task/[0-9]*/stat")]

    def _stats(self, files: str) -> Iterator[list[str]]:
        """What Linux says of its processes, or of their threads, from the state on."""
        for stat in Path("/proc").glob(files):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(") ")[2].split()
                if int(fields[2]) == self._process.pid:  # its process group
                    yield fields

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
