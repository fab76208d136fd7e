"""`python -m dev.bench.memory`: what open streams take of a container's memory and threads.

    venv/bin/python -m dev.bench.memory

One functions-framework process of `start_turn` with the demo agent, first idle, then with more
and more turns that talk and stream at once. Resident memory is that of the process and its worker,
as the platform counts it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from dev import containers
from dev.bench.journal import client
from dev.bench.journal.client import Stream, new_turn_id
from dev.containers import Container

STREAMS = (0, 10, 30, 35)
PROMPT = "Tell me about leases rate=50 silence=1 words=2000"
SETTLE_SECONDS = 6.0


@dataclass(frozen=True)
class Measured:
    """A container with so many streams open."""

    streams: int
    resident_mib: float
    threads: int
    cpu: float
    """Of one core."""


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m dev.bench.memory", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="*", default=list(STREAMS))
    options = parser.parse_args()
    with containers.emulator() as storage:
        rows = [measure(storage.address, count) for count in options.streams]
    print("| streams, each of a turn of its own | resident memory, MiB | threads | CPU of a core |")
    print("| --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row.streams} | {row.resident_mib:.0f} | {row.threads} | {row.cpu:.0%} |")
    most, least = rows[-1], rows[0]
    if most.streams > least.streams:
        each = (most.resident_mib - least.resident_mib) / (most.streams - least.streams)
        print(f"\nA stream with its turn takes {each:.2f} MiB.")
    return 0


def measure(storage: str, count: int) -> Measured:
    """A fresh process that has served one turn, with `count` streams open."""
    settings = {"REQUIRE_AUTH": "false", "THREADS": "40"}
    with containers.function("start_turn", storage, settings) as container:
        first = _first(container)
        streams = [Stream.open(container.port, new_turn_id(), PROMPT) for _ in range(count)]
        client.read(streams, until=_after(SETTLE_SECONDS))
        before, at = _look(container), time.monotonic()
        client.read(streams, until=_after(SETTLE_SECONDS))
        if any(stream.ended for stream in streams):
            raise RuntimeError("a turn ended before it was measured")
        if not streams:
            time.sleep(SETTLE_SECONDS)
        now, seconds = _look(container), time.monotonic() - at
        client.close([first, *streams])
        return Measured(
            count,
            now.pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            now.threads,
            (now.ticks - before.ticks) / os.sysconf("SC_CLK_TCK") / seconds,
        )


def _first(container: Container) -> Stream:
    """The first turn, once the emulator is awake enough to answer in time."""
    until = _after(client.WARM_UP_SECONDS)
    while True:
        stream = Stream.open(container.port, new_turn_id(), "hi rate=100 silence=0")
        try:
            client.read([stream], until=until)
        except RuntimeError:
            client.close([stream])
            if time.monotonic_ns() > until:
                raise
            time.sleep(1)
        else:
            return stream


def _after(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


@dataclass(frozen=True)
class _Seen:
    pages: int
    threads: int
    ticks: int


def _look(container: Container) -> _Seen:
    """What Linux says of the processes of its group."""
    pages = threads = ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[2]) == container.process.pid:
            pages += int(fields[21])
            threads += int(fields[17])
            ticks += int(fields[11]) + int(fields[12])
    return _Seen(pages, threads, ticks)


if __name__ == "__main__":
    sys.exit(main())
