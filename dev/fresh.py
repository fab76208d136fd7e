"""`python3 -m dev.fresh`: what a newcomer meets: a clone, no caches, the README's two commands.

    python3 -m dev.fresh [--tests 'tests/wire tests/turns'] [--report docs/reports/fresh.md]

Clones what is committed into an empty folder, with an empty home and empty caches of pip, npm and
the rest; runs `make dev` until a turn has streamed to its end, stops it, and runs `make test`. Says
how long each took. Packages come from wherever pip and npm are configured to get them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from dev import command
from dev.project import ROOT, ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

READY_SECONDS = 900.0
TURN_SECONDS = 120.0
STOP_SECONDS = 60.0
_START = re.compile(r"^ *(curl -N \S+/start_turn .+)$", re.MULTILINE)
_CACHES = {
    "HOME": "home",
    "XDG_CACHE_HOME": "home/.cache",
    "PIP_CACHE_DIR": "caches/pip",
    "npm_config_cache": "caches/npm",
    "npm_config_userconfig": "home/.npmrc",
}
_FROM_HERE = ("VIRTUAL_ENV", "PYTHONPATH", "GCLOUD_PROJECT", "FIRESTORE_EMULATOR_HOST")
"""Variables of this folder that a newcomer does not have."""


@dataclass(frozen=True)
class Took:
    """A step, and its seconds."""

    what: str
    seconds: float


def main() -> int:
    """Run it all; print the times."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.fresh", description=__doc__)
    parser.add_argument("--tests", default="", help="ARGS of `make test`; default: all")
    parser.add_argument("--report", type=Path, help="write the times there, as Markdown")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="agent-turns-fresh-"))
    try:
        took = run(folder, options.tests)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    rows = [f"| {one.what} | {one.seconds:.0f} s |" for one in took]
    text = "\n".join(["| step | took |", "| --- | --- |", *rows])
    print(f"\n{text}")
    if options.report is not None:
        options.report.write_text(_report(text, options.tests), "utf-8")
    return 0


def run(folder: Path, tests: str) -> list[Took]:
    """Clone into `folder` and do what the README says there.

    Raises:
        ProblemError: a step failed; its last words are in the message.
    """
    environ = {name: value for name, value in os.environ.items() if name not in _FROM_HERE}
    for name, path in _CACHES.items():
        environ[name] = str(folder / path)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    clone = folder / "clone"
    took = [_timed("`git clone`", ["git", "clone", "--quiet", str(ROOT), str(clone)], folder)]
    begun = time.monotonic()
    with _dev(clone, environ, folder / "dev.log") as log:
        start = _ready(log)
        took.append(Took("`make dev`, until it serves", time.monotonic() - begun))
        print(took[-1], flush=True)
        begun = time.monotonic()
        came, pastes = _stream(start, clone, environ)
        again = "" if pastes == 1 else f", pasted {pastes} times"
        took.append(Took(f"the turn of the first line it prints{again}", time.monotonic() - begun))
        print(f"streamed {came} bytes to the terminal event", flush=True)
    words = ["make", "test", *([f"ARGS={tests}"] if tests else [])]
    took.append(_timed(f"`{' '.join(words)}`", words, clone, environ))
    return took


def _timed(what: str, words: list[str], cwd: Path, environ: dict[str, str] | None = None) -> Took:
    print(f"== {what}", flush=True)
    begun = time.monotonic()
    done = subprocess.run(words, cwd=cwd, env=environ, check=False)
    if done.returncode != 0:
        raise ProblemError(f"{what} ended with {done.returncode}")
    return Took(what, time.monotonic() - begun)


@contextmanager
def _dev(clone: Path, environ: dict[str, str], path: Path) -> Iterator[_Log]:
    """Run `make dev`; end it as Ctrl-C in its terminal does."""
    print("== make dev", flush=True)
    with path.open("w+", encoding="utf-8") as file:
        process = subprocess.Popen(
            ["make", "dev"],
            cwd=clone,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield _Log(process, path)
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise ProblemError("make dev does not end on Ctrl-C") from None


@dataclass(frozen=True)
class _Log:
    process: subprocess.Popen[bytes]
    path: Path

    def text(self) -> str:
        return self.path.read_text("utf-8", errors="replace")


def _ready(log: _Log) -> str:
    """Wait for the lines to paste; the first of them."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        match = _START.search(log.text())
        if match is not None:
            return match[1]
        if log.process.poll() is not None:
            break
        time.sleep(0.5)
    raise ProblemError(f"make dev did not get ready; its last words:\n{log.text()[-3000:]}")


def _stream(line: str, clone: Path, environ: dict[str, str]) -> tuple[int, int]:
    """Paste a line until the turn ends: how many bytes came, and how often it was pasted.

    A machine that is slow to wake up may answer 503 with `Retry-After`: then it is pasted again.
    """
    until = time.monotonic() + TURN_SECONDS
    pastes = 1
    while True:
        try:
            return _paste(line, clone, environ), pastes
        except ProblemError as problem:  # noqa: PERF203 - each paste may fail
            if "storage_unavailable" not in str(problem) or time.monotonic() > until:
                raise
            pastes += 1
            time.sleep(2)


def _paste(line: str, clone: Path, environ: dict[str, str]) -> int:
    """Run a line in a shell; how many bytes came up to the turn's terminal event."""
    shell = subprocess.Popen(
        ["bash", "-c", line],
        cwd=clone,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    watchdog = threading.Timer(TURN_SECONDS, shell.kill)
    watchdog.start()
    try:
        assert shell.stdout is not None
        return _to_the_end(shell.stdout)
    finally:
        watchdog.cancel()
        shell.kill()
        shell.wait()


def _to_the_end(lines: IO[str]) -> int:
    came, last = 0, ""
    for one in lines:
        came += len(one)
        last = one if one.strip() else last
        if one.startswith("event: done"):
            return came
    raise ProblemError(f"the turn did not end with `done`; the last that came: {last!r}")


def _report(table: str, tests: str) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    there = "FIRESTORE_EMULATOR_BINARY_PATH" in os.environ
    jar = "; the Firestore emulator was there already" if there else ""
    given = f" --tests '{tests}'" if tests else ""
    return f"""# A fresh machine

A clone into an empty folder, with an empty home and empty caches of pip and npm, and the README's
two commands, by

    python3 -m dev.fresh{given} --report docs/reports/fresh.md

{table}

Run on {day}, on {os.cpu_count()} cores. Packages came from the
registries that pip and npm are configured for{jar}.
"""


if __name__ == "__main__":
    sys.exit(command.status(main))
