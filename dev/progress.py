"""Run a slow command so that a person sees that it lives, and sees its output only if it fails."""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from dev.project import ProblemError

_REDRAW_SECONDS = 0.2
_REPORT_SECONDS = 10.0


def run(what: str, command: Sequence[str], *, cwd: Path, on_failure: str) -> None:
    """Run a command to its end, with its name, the seconds it has taken and its newest line.

    On a terminal that is one line, drawn anew; elsewhere a line at the start and every 10 s.

    Raises:
        ProblemError: the command failed; the message is its whole output, then `on_failure`.
    """
    start = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        output = _follow(what, process, start)
    seconds = time.monotonic() - start
    if process.returncode:
        _say(f"{what}: failed after {seconds:.0f} s")
        raise ProblemError(f"{output.rstrip()}\n\n{on_failure}")
    _say(f"{what}: done in {seconds:.0f} s")


def _follow(what: str, process: subprocess.Popen[str], start: float) -> str:
    lines: queue.Queue[str | None] = queue.Queue()
    assert process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    terminal = sys.stdout.isatty()
    if not terminal:
        _say(f"{what} …")
    output: list[str] = []
    reported = start
    while True:
        try:
            line = lines.get(timeout=_REDRAW_SECONDS)
        except queue.Empty:
            pass
        else:
            if line is None:
                return "".join(output)
            output.append(line)
        now = time.monotonic()
        newest = output[-1].strip() if output else ""
        if terminal:
            _draw(f"{what}: {now - start:.0f} s  {newest}")
        elif now - reported >= _REPORT_SECONDS:
            reported = now
            _say(f"{what}: {now - start:.0f} s  {newest[:80]}".rstrip())


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _draw(text: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    sys.stdout.write("\r\x1b[K" + text[:width])
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stdout.write(("\r\x1b[K" if sys.stdout.isatty() else "") + text + "\n")
    sys.stdout.flush()
