"""Follower lag: from the emission of a token in one process to its arrival through another."""

from __future__ import annotations

import time
from functools import partial

from dev.bench.journal import client, processes
from dev.bench.journal.client import Stream, new_turn_id
from dev.bench.journal.report import Figure, Section, percentile
from dev.bench.journal.scale import RATE, Scale
from dev.containers import Container

EXPECTED_P99_SECONDS = 0.6
_HEAD_START_SECONDS = 0.5
"""Then the followers come, replay, and follow."""
_SPARE_SECONDS = 1.0
"""The turns go on for so long after the window."""


def measure(storage: str, scale: Scale) -> Section:
    """Have one process own turns and another follow them."""
    figures: list[Figure] = []
    with (
        processes.function("start_turn", storage) as owner,
        processes.function("resume_turn", storage) as follower,
    ):
        client.download(follower.port, client.warm_up(owner.port))
        for count in scale.followed:
            lags = client.measured(partial(_lags, owner, follower, count, scale))
            p50, p99 = percentile(lags, 50) / 1000, percentile(lags, 99) / 1000
            name = f"follower lag at {count} turn{'s' * (count > 1)}"
            figures += [
                Figure(f"{name}, p50 s", f"{p50:.3f}"),
                Figure(
                    f"{name}, p99 s",
                    f"{p99:.3f}",
                    expected=f"< {EXPECTED_P99_SECONDS}",
                    met=p99 < EXPECTED_P99_SECONDS,
                ),
            ]
    return Section(
        figures,
        f"follower lag: turns of {RATE} tokens/s owned by a `start_turn` process, each followed"
        f" through a `resume_turn` process for {scale.followed_seconds:g} s. The"
        " flush time is part of it.",
    )


def _lags(owner: Container, follower: Container, count: int, scale: Scale) -> list[float] | None:
    """Return the lags, in ms, of all tokens emitted in the window; None if none was."""
    seconds = _HEAD_START_SECONDS + scale.settle_seconds + scale.followed_seconds + _SPARE_SECONDS
    prompt = f"tokens={int(seconds * RATE)} rate={RATE}"
    turns = [new_turn_id() for _ in range(count)]
    owned = [Stream.open(owner.port, turn_id, prompt) for turn_id in turns]
    client.read(owned, until=time.monotonic_ns() + int(_HEAD_START_SECONDS * 1e9))
    followed = [Stream.open(follower.port, turn_id) for turn_id in turns]
    since = time.monotonic_ns() + int(scale.settle_seconds * 1e9)
    until = since + int(scale.followed_seconds * 1e9)
    client.read([*owned, *followed], until=until + int(60e9))  # to the turns' ends
    client.close([*owned, *followed])
    pairs = (pair for stream in followed for pair in zip(stream.emitted, stream.arrived))
    lags = [(arrived - emitted) / 1e6 for emitted, arrived in pairs if since <= emitted < until]
    return lags or None
