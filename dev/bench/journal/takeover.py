"""Takeover: from the owner's death by SIGKILL to the first event of the next epoch."""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median

from dev.bench.journal import client, processes
from dev.bench.journal.client import Stream, new_turn_id
from dev.bench.journal.report import Figure, Section
from dev.bench.journal.scale import RATE, Scale

EXPECTED_OVER_LEASE_SECONDS = 2.0
_PATIENCE_SECONDS = 20.0


def measure(storage: str, scale: Scale) -> Section:
    """Kill owners of several turns each, while another process follows these."""
    figures: list[Figure] = []
    for lease_seconds, kills, turns in scale.takeovers:
        found = [
            seconds for _ in range(kills) for seconds in _takeovers(storage, lease_seconds, turns)
        ]
        expected = lease_seconds + EXPECTED_OVER_LEASE_SECONDS
        figures.append(
            Figure(
                f"takeover with a lease of {lease_seconds:g} s, median (longest) of {len(found)},"
                " seconds",
                f"{median(found):.1f} ({max(found):.1f})",
                expected=f"< {expected:g}",
                met=max(found) < expected,
            )
        )
    return Section(
        figures,
        "takeover: the process that owns the turns is killed (SIGKILL); from then to the arrival"
        " of the `rewind` that opens the next epoch, at a client that follows through a"
        " `resume_turn` process. Renewals of the turns were spread evenly over their period.",
    )


def _takeovers(storage: str, lease_seconds: float, turns: int) -> list[float]:
    """Return for each turn the seconds from the kill to its rewind."""
    with ExitStack() as stack:
        owner = stack.enter_context(
            processes.function("start_turn", storage, lease_seconds=lease_seconds)
        )
        follower = stack.enter_context(
            processes.function("resume_turn", storage, lease_seconds=lease_seconds)
        )
        prompt = f"tokens={100 * RATE} rate={RATE // 10}"
        streams: list[Stream] = []
        followed: list[Stream] = []
        for _ in range(turns):  # begun one after another, so that they renew at different moments
            turn_id = new_turn_id()
            streams.append(Stream.open(owner.port, turn_id, prompt))
            _read_until_begun(streams)
            followed.append(Stream.open(follower.port, turn_id))
            _read_until_begun(followed)
            pause = time.monotonic_ns() + int(lease_seconds / 3 / turns * 1e9)
            client.read([*streams, *followed], until=pause)
        killed_at = time.monotonic_ns()
        owner.kill()
        until = killed_at + int((lease_seconds + _PATIENCE_SECONDS) * 1e9)
        client.read(followed, until=until, stop_on_rewind=True)
        client.close([*streams, *followed])
        missing = sum(1 for stream in followed if stream.rewound_at is None)
        if missing:
            raise RuntimeError(f"{missing} of {turns} turns were not taken over")
        return [(stream.rewound_at - killed_at) / 1e9 for stream in followed if stream.rewound_at]


def _read_until_begun(streams: list[Stream]) -> None:
    """Read on until the newest of these streams has its first token."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while not streams[-1].arrived:
        if time.monotonic() > until:
            raise RuntimeError("a turn did not begin")
        client.read(streams, until=time.monotonic_ns() + int(0.02e9))
