"""How much is measured: enough for medians, or just enough to see that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RATE = 200
"""Tokens a second of one turn."""


@dataclass(frozen=True)
class Scale:
    """Counts and durations (seconds)."""

    commit_warm_up: int
    """Rounds that do not count: Java's compiler takes that long."""
    commit_rounds: int
    single_rounds: int
    """Rounds with a transaction for each event: they take long."""
    counted_tokens: int
    replay_events: int
    replay_rounds: int
    live_streams: Sequence[int]
    live_rounds: int
    live_seconds: float
    settle_seconds: float
    """From the last request on, before tokens count, live and followed."""
    followed: Sequence[int]
    followed_seconds: float
    takeovers: Sequence[tuple[float, int, int]]
    """Lease seconds, kills, turns each."""


FULL = Scale(
    commit_warm_up=30,
    commit_rounds=101,
    single_rounds=7,
    counted_tokens=3000,
    replay_events=20_000,
    replay_rounds=15,
    live_streams=(1, 20, 40),
    live_rounds=3,
    live_seconds=3,
    settle_seconds=1.5,
    followed=(1, 10),
    followed_seconds=8,
    takeovers=((9, 2, 6), (1, 3, 6)),
)
QUICK = Scale(
    commit_warm_up=1,
    commit_rounds=3,
    single_rounds=1,
    counted_tokens=100,
    replay_events=500,
    replay_rounds=1,
    live_streams=(2,),
    live_rounds=1,
    live_seconds=0.5,
    settle_seconds=0.5,
    followed=(1,),
    followed_seconds=0.5,
    takeovers=((1, 1, 1),),
)
