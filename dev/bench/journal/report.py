"""Figures as a table, for people: on the terminal and as Markdown."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from dev import java
from dev.bench.journal import processes

_COLUMNS = ("figure", "ours", "baseline", "ratio", "expected", "met")


@dataclass(frozen=True)
class Figure:
    """One line of the table. `met` is None where nothing is expected."""

    name: str
    ours: str
    baseline: str = ""
    ratio: str = ""
    expected: str = ""
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """Its columns."""
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        return (self.name, self.ours, self.baseline, self.ratio, self.expected, met)


@dataclass(frozen=True)
class Section:
    """What one measurement found."""

    figures: Sequence[Figure]
    how: str
    """What was measured and how, in a sentence or two."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of at least one value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def times(ratio: float) -> str:
    """Return a ratio in words: 12.3 gives "12x"."""
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def machine() -> str:
    """Return in a line what the figures were measured on."""
    return ", ".join(
        (
            f"{os.cpu_count()} cores ({_processor()}), {platform.system()}",
            f"Python {platform.python_version()}",
            f"{processes.emulator_version()} on Java {java.major(java.locate())}",
        )
    )


def markdown(sections: Sequence[Section], command: str, remark: str) -> str:
    """Return the whole report; the remark stands at its end."""
    table = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    table += [_row(figure.cells) for section in sections for figure in section.figures]
    lines = [
        "# What the journal costs",
        "",
        f"Measured {datetime.now(timezone.utc):%Y-%m-%d}, all processes on one machine:",
        f"{machine()}.",
        "",
        f"    {command}",
        "",
        *table,
        "",
        "## How",
        "",
        *(f"- {section.how}" for section in sections),
        "",
        remark,
    ]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
