"""`python -m dev.bench.journal`: measure, and print a report. Takes a few minutes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from dev import containers
from dev.bench.journal import (
    commit,
    follow,
    latency,
    replay,
    report,
    takeover,
    writes,
)
from dev.bench.journal.report import Section
from dev.bench.journal.scale import FULL, QUICK
from dev.project import LOCAL_PROJECT, ProblemError

MEASUREMENTS = {
    "commit": commit.measure,
    "writes": writes.measure,
    "replay": replay.measure,
    "latency": latency.measure,
    "follow": follow.measure,
    "takeover": takeover.measure,
}

_FULL = "Figures of the emulator compare designs; they do not foretell production's milliseconds."
_QUICK = "This was a quick run: its figures mean nothing."


def main() -> int:
    """Measure what the arguments name; return an exit status, 1 if an expectation is not met."""
    parser = argparse.ArgumentParser(prog="python -m dev.bench.journal", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts: does it run at all?")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="may be repeated")
    parser.add_argument("--report", type=Path, help="write the report there, as Markdown")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process is ended
    try:
        sections = _measure(options.only or list(MEASUREMENTS), quick=options.quick)
        text = report.markdown(sections, _command(options), _QUICK if options.quick else _FULL)
    except ProblemError as problem:
        print(problem, file=sys.stderr)
        return 2
    print(text)
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(text, "utf-8")
    met = [figure.met for section in sections for figure in section.figures]
    return 0 if options.quick or False not in met else 1


def _measure(names: list[str], *, quick: bool) -> list[Section]:
    sections = []
    with containers.emulator() as storage:
        os.environ["FIRESTORE_EMULATOR_HOST"] = storage.address
        os.environ["GCLOUD_PROJECT"] = LOCAL_PROJECT
        for name in names:
            begun = time.monotonic()
            sections.append(MEASUREMENTS[name](storage.address, QUICK if quick else FULL))
            print(f"{name}: measured in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return sections


def _command(options: argparse.Namespace) -> str:
    words = ["venv/bin/python -m dev.bench.journal", *(["--quick"] if options.quick else [])]
    words += [f"--only {name}" for name in options.only or []]
    words += [f"--report {options.report}"] if options.report else []
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
