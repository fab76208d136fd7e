"""An Emulator Suite on free ports, for tests: several may run at once, beside `make dev`, too."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.ports import free_port
from dev.project import EMULATORS, LOCAL_PROJECT, ROOT, STREAMS, function_url, read
from dev.stack import Stack, answer

_STARTED = "All emulators ready"
_FAILED_TO_LOAD = "Failed to load function definition"
_LAST_WORDS = 8000
_POLL_SECONDS = 0.25
_WEBSOCKET = "websocket"
_INNER = ("hub", "logging", "eventarc")
"""Servers that firebase-tools starts unasked. It would find free ports by itself, but two suites
that look at the same moment find the same ones."""


@dataclass(frozen=True)
class Suite:
    """A suite whose functions answer."""

    project: str
    ports: Mapping[str, int]
    log: Path
    """What firebase-tools and the functions print, while the suite runs."""
    mark: str
    """What `dev.processes.marked` finds its processes by."""

    def function(self, name: str) -> str:
        """Return a function's URL, without a slash at the end."""
        return function_url(name, self.ports["functions"])

    def host(self, emulator: str) -> str:
        """Return an emulator's `host:port`, as FIRESTORE_EMULATOR_HOST and its like want it."""
        return f"127.0.0.1:{self.ports[emulator]}"

    @property
    def hosting(self) -> str:
        """The URL of the pages, without a slash at the end."""
        return f"http://{self.host('hosting')}"


@contextlib.contextmanager
def running(
    root: Path = ROOT,
    *,
    settings: Mapping[str, str] | None = None,
    ports: Mapping[str, int] | None = None,
    functions: Sequence[str] = STREAMS,
    ready_seconds: float = 150.0,
) -> Iterator[Suite]:
    """Start a suite for the project in `root`, end it with all its processes and files.

    Args:
        root: has `firebase.json`, `main.py`, `venv` and what they name.
        settings: added to those of `.env` and `.env.PROJECT`, over them. What a developer has in
            `.env.local` does not count.
        ports: from `choose_ports`, for a caller that needs one before the start.
        functions: must answer before the suite counts as ready.
        ready_seconds: how long they may take.

    Raises:
        ProblemError: Node.js or Java is missing.
        RuntimeError: the suite did not get ready, or a process outlived it; the message ends with
            the last of what it printed.
    """
    ports = ports or choose_ports()
    with contextlib.ExitStack() as stack:
        # Real paths: `source` becomes relative, and a link on the way (macOS's /tmp) breaks that.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        config = config_on(read(root).config, folder=folder, root=root.resolve(), ports=ports)
        (folder / "firebase.json").write_text(json.dumps(config), "utf-8")
        (folder / ".env").write_text(_dotenv(root, settings or {}), "utf-8")
        log = folder / "suite.log"
        output = stack.enter_context(log.open("wb"))
        with one_at_a_time():
            started = stack.enter_context(
                Stack(
                    cwd=folder,
                    config=folder / "firebase.json",
                    output=output,
                    # The hub's locator file and the like go down with the folder.
                    environment={"TMPDIR": str(folder)},
                )
            )
            await_definitions(started, log, ready_seconds)
        suite = Suite(LOCAL_PROJECT, ports, log, started.mark)
        _await(suite, started, functions, time.monotonic() + ready_seconds)
        yield suite


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold other suites of this machine back: to read the functions' definitions, firebase-tools
    serves them on the first free port from 8081 on. Two that look at the same moment find the same
    one, and one of them reads the other's functions.
    """
    with (Path(tempfile.gettempdir()) / f"agent-turns-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def await_definitions(started: Stack, log: Path, seconds: float) -> None:
    """Wait until a suite has read its functions' definitions, has ended, or is late."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and started.ended() is None:
        if _STARTED in log.read_text("utf-8", errors="replace"):
            return
        time.sleep(_POLL_SECONDS)


def choose_ports() -> dict[str, int]:
    """Return a port for each server of a suite; nothing listens on them at this moment."""
    names = (*EMULATORS, *_INNER, _WEBSOCKET)
    chosen: set[int] = set()
    while len(chosen) < len(names):
        chosen.add(free_port())
    return dict(zip(names, chosen))


def config_on(
    config: Mapping[str, Any], *, folder: Path, root: Path, ports: Mapping[str, int]
) -> dict[str, Any]:
    """Return the configuration that, lying in `folder`, serves `root` on those ports.

    The functions' settings are read from `folder`, not from `root`. firebase-tools joins some of
    the paths to the folder of the file, so these are relative; the rules' may not climb out of it.
    """

    def from_folder(path: str) -> str:
        return os.path.relpath(root / path, folder)

    emulators: dict[str, Any] = {
        name: {"host": "127.0.0.1", "port": ports[name]} for name in (*EMULATORS, *_INNER)
    }
    emulators["firestore"]["websocketPort"] = ports[_WEBSOCKET]
    functions, firestore, hosting = (config[name] for name in ("functions", "firestore", "hosting"))
    return {
        **config,
        "functions": {**functions, "source": from_folder(functions["source"]), "configDir": "."},
        "firestore": {**firestore, "rules": str(root / firestore["rules"])},
        "hosting": {**hosting, "public": from_folder(hosting["public"])},
        "emulators": {**emulators, "ui": {"enabled": False}, "singleProjectMode": True},
    }


def _dotenv(root: Path, settings: Mapping[str, str]) -> str:
    """Return the text of one dotenv file that says it all: a name's last line counts."""
    files = [root / ".env", root / f".env.{LOCAL_PROJECT}"]
    texts = [path.read_text("utf-8") for path in files if path.exists()]
    return "\n".join([*texts, *(f"{name}={_quoted(value)}" for name, value in settings.items())])


def _quoted(value: str) -> str:
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        value = value.replace(character, escape)
    return f'"{value}"'


def _await(suite: Suite, started: Stack, functions: Sequence[str], deadline: float) -> None:
    for function in functions:
        while (lacking := answer(function, suite.ports["functions"])) is not None:
            words = suite.log.read_text("utf-8", errors="replace")
            late = time.monotonic() > deadline
            if late or started.ended() is not None or _FAILED_TO_LOAD in words:
                raise RuntimeError(
                    f"{function} does not answer ({lacking}); the suite's last words:\n"
                    + words[-_LAST_WORDS:]
                )
            time.sleep(_POLL_SECONDS)
