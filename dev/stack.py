"""One running Emulator Suite: firebase-tools and every process that it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from dev import firestore_emulator, java, node, processes
from dev.project import EMULATORS, LOCAL_PROJECT, ROOT, function_url

if TYPE_CHECKING:
    from typing import Self

_ANSWER_SECONDS = 60.0


class Stack:
    """A context manager: the suite starts on entry, and no process of it is left on exit.

    Nor is one left if this process dies without an exit, be it by SIGKILL: a reaper watches it.
    It lives in sessions of its own, so a Ctrl-C at the terminal reaches this process only.
    """

    def __init__(
        self,
        *,
        cwd: Path,
        config: Path | None = None,
        output: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a suite.

        Args:
            cwd: where firebase-tools runs and writes its logs.
            config: the `firebase.json` to go by; None finds it from `cwd` upwards.
            output: where the suite's words go; None is where this process's go.
            environment: what it and the functions inherit beyond this process's environment.

        Raises:
            ProblemError: Node.js or Java is missing.
        """
        self.mark = uuid.uuid4().hex
        self._cwd = cwd
        self._output = output
        self._command = [
            *node.firebase(),
            "emulators:start",
            *("--only", ",".join(EMULATORS), "--project", LOCAL_PROJECT),
            *(("--config", str(config)) if config is not None else ()),
        ]
        self._environment = {
            **os.environ,
            **java.environment(java.locate()),
            **_jar(),
            # Importing the Google libraries on a busy machine takes longer than the 10 s it allows.
            "FUNCTIONS_DISCOVERY_TIMEOUT": "60",
            "NO_UPDATE_NOTIFIER": "1",
            **(environment or {}),
            processes.MARK_VARIABLE: self.mark,
        }
        self._firebase: subprocess.Popen[bytes] | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._beside: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start the reaper, then the suite; the suite is not ready yet."""
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "dev.processes", self.mark],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._firebase = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT if self._output is not None else None,
                start_new_session=True,
            )
        except BaseException:
            self._reaper.communicate()
            raise
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(str(self._firebase.pid).encode())
        self._reaper.stdin.flush()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the suite and all that it started.

        Raises:
            RuntimeError: a process of it could not be ended.
        """
        assert self._reaper is not None
        assert self._firebase is not None
        self._reaper.communicate()
        for process in (self._firebase, *self._beside):
            process.wait()
        if self._reaper.returncode:
            raise RuntimeError(f"these processes could not be ended: {processes.marked(self.mark)}")

    def start_beside(self, program: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program of the repository's beside the suite; it is ended with the suite."""
        process = subprocess.Popen(
            program,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT if self._output is not None else None,
            start_new_session=True,
        )
        self._beside.append(process)
        return process

    def dismiss_orphans(self) -> None:
        """Let servers of old code finish: after an edit, firebase-tools only lets go of them."""
        assert self._firebase is not None
        processes.dismiss_orphans(self.mark, self._firebase.pid)

    def ended(self) -> int | None:
        """Return firebase-tools' exit status if it has ended by itself, else None."""
        assert self._firebase is not None
        return self._firebase.poll()


def answer(function: str, port: int) -> str | None:
    """Ask a function, through the Functions emulator on that port, for its health.

    Blocks while the emulator starts a process for it. Returns None if our own code answered
    (with 200 and a JSON object), else what came instead, in a few words.
    """
    try:
        with urllib.request.urlopen(  # noqa: S310 - the URL is our own
            f"{function_url(function, port)}/__/health", timeout=_ANSWER_SECONDS
        ) as response:
            body = response.read()
        return None if isinstance(json.loads(body), dict) else "another body than our own code's"
    except urllib.error.HTTPError as refusal:
        with refusal:
            return f"{refusal.code} {refusal.read(200).decode(errors='replace')}"
    except (OSError, ValueError) as error:
        return str(error)


def _jar() -> dict[str, str]:
    jar = firestore_emulator.locate()
    return {} if jar is None else {firestore_emulator.OVERRIDE: str(jar)}
