"""`python -m dev.bench.cold_start`: how long a fresh process imports `main`, and for what.

    venv/bin/python -m dev.bench.cold_start [--runs 11]

The median of fresh processes, then the modules that took the longest in one more, from Python's own
`-X importtime`. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

from dev.project import ROOT

EXPECTED_SECONDS = 1.0
_LINE = re.compile(r"import time:\s*(\d+) \|\s*(\d+) \|( +)(\S+)")
_CLOCK = "import time; at = time.perf_counter(); import main; print(time.perf_counter() - at)"


@dataclass(frozen=True)
class Import:
    """One module's import. Times in seconds."""

    module: str
    own: float
    whole: float
    """With what it imports first."""


def main() -> int:
    """Measure and print; return 1 when the median is not below what is expected."""
    parser = argparse.ArgumentParser(prog="python -m dev.bench.cold_start", description=__doc__)
    parser.add_argument("--runs", type=int, default=11, help="fresh processes (11)")
    parser.add_argument("--top", type=int, default=15, help="rows of each table (15)")
    options = parser.parse_args()
    took = sorted(seconds() for _ in range(options.runs))
    median = statistics.median(took)
    print(
        f"import main: median {median:.2f} s of {len(took)} fresh processes "
        f"({took[0]:.2f} to {took[-1]:.2f}); expected < {EXPECTED_SECONDS:g} s"
    )
    imports = table()
    print("\n| package | modules | own time, ms |\n| --- | --- | --- |")
    for package, own, count in packages(imports)[: options.top]:
        print(f"| {package} | {count} | {own * 1000:.0f} |")
    print("\n| module | with what it imports, ms | own time, ms |\n| --- | --- | --- |")
    for one in sorted(imports, key=lambda one: -one.whole)[: options.top]:
        print(f"| {one.module} | {one.whole * 1000:.0f} | {one.own * 1000:.0f} |")
    return 0 if median < EXPECTED_SECONDS else 1


def seconds() -> float:
    """How long one fresh process imports `main`, after Python's own start."""
    return float(_python("-c", _CLOCK).stdout)


def table() -> list[Import]:
    """What one fresh process imports, as Python measures it."""
    return parse(_python("-X", "importtime", "-c", "import main").stderr)


def parse(printed: str) -> list[Import]:
    """Read what `-X importtime` printed."""
    return [
        Import(module, int(own) / 1e6, int(whole) / 1e6)
        for own, whole, _indent, module in _LINE.findall(printed)
    ]


def packages(imports: list[Import]) -> list[tuple[str, float, int]]:
    """Own times summed by top-level package, the longest first, and how many modules they are."""
    own: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for one in imports:
        name = one.module.split(".")[0]
        own[name] += one.own  # type: ignore[assignment]  # a Counter adds up floats as well
        count[name] += 1
    return [(name, total, count[name]) for name, total in own.most_common()]


def _python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )


if __name__ == "__main__":
    sys.exit(main())
