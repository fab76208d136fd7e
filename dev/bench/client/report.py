"""The client's figures as tables, and whether they are as expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dev.bench.client.measure import MB, Stream

LONGEST_TASK_MS = 50
MOST_PAINTS = 61
"""Sixty frames a second, and the one at once at the end."""
MOST_GROWTH = 3
"""Of the time for twice as much: two would be exactly linear, four quadratic."""

_COLUMNS = (
    "stream",
    "page",
    "took, s",
    "frames/s",
    "paints/s",
    "CPU a paint, ms",
    "long tasks",
    "longest, ms",
    "heap after, MB",
    "heap at most, MB",
)


@dataclass(frozen=True)
class Measured:
    """One stream, by both pages."""

    name: str
    ours: Stream
    naive: Stream


def streams(measured: Sequence[Measured]) -> str:
    """Return the table of the streams, as Markdown."""
    lines = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    for each in measured:
        lines += [_stream(each.name, "ours", each.ours), _stream("", "naive", each.naive)]
    return "\n".join(lines)


def parsers(measured: Sequence[tuple[float, dict[str, float]]]) -> str:
    """Return the table of the parsers, as Markdown."""
    columns = ("input", "one frame: parser, MB/s", "regex over a buffer, MB/s", "the client, MB/s")
    lines = [_row(columns), _row(["---"] * 4)]
    for size, ways in measured:
        rates = [f"{1000 * size / ways[way]:.1f}" for way in ("ours", "regex", "consume")]
        lines.append(_row([f"{size:g} MB", *rates]))
    return "\n".join(lines)


def unmet(
    measured: Sequence[Measured], parsed: Sequence[tuple[float, dict[str, float]]]
) -> list[str]:
    """Return what is expected and was not found, in words."""
    found = []
    for each in measured:
        if each.ours.per_second("paints") > MOST_PAINTS:
            found.append(f"{each.name}: more than 60 paints a second")
        if each.name.startswith("200 ") and each.ours.figures["longestMs"] > LONGEST_TASK_MS:
            found.append(f"{each.name}: a task of more than {LONGEST_TASK_MS} ms")
        if not each.ours.figures["finished"]:
            found.append(f"{each.name}: not finished in time")
    for (_, less), (size, more) in zip(parsed, parsed[1:]):
        found += [
            f"{name} is not linear at {size:g} MB"
            for name, way in (("the parser", "ours"), ("the client", "consume"))
            if more[way] > MOST_GROWTH * less[way]
        ]
    return found


def _stream(name: str, who: str, stream: Stream) -> str:
    took = f"{stream.seconds:.1f}" + ("" if stream.figures["finished"] else " (given up)")
    return _row(
        [
            name,
            who,
            took,
            f"{stream.per_second('frames'):.0f}",
            f"{stream.per_second('paints'):.0f}",
            f"{1000 * stream.cpu_seconds / max(1, stream.figures['paints']):.1f}",
            str(stream.figures["longTasks"]),
            f"{stream.figures['longestMs']:.0f}",
            f"{stream.heap / MB:.1f}",
            f"{stream.figures['peakHeap'] / MB:.1f}",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
