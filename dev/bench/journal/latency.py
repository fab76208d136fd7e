"""Live latency: from the agent's emission of a token to its arrival at the client."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median

from dev.bench.journal import client, processes
from dev.bench.journal.client import Stream, new_turn_id
from dev.bench.journal.report import Figure, Section, percentile, times
from dev.bench.journal.scale import RATE, Scale
from dev.containers import Container

EXPECTED_P99_MS = 10
EXPECTED_AT_STREAMS = 20
_SPARE_SECONDS = 0.5
"""The turns go on for so long after the window."""


@dataclass(frozen=True)
class _Round:
    p50: float
    p99: float
    achieved: float
    """Tokens that came in the window, over those asked for."""
    client_cpu: float
    client_p99: float


def measure(storage: str, scale: Scale) -> Section:
    """Run each number of streams against both functions in turn."""
    figures: list[Figure] = []
    clients: list[_Round] = []
    with (
        processes.function("start_turn", storage) as start,
        processes.function("plain_stream", storage) as plain,
    ):
        for server in (start, plain):
            client.warm_up(server.port)
        for count in scale.live_streams:
            rounds: tuple[list[_Round], list[_Round]] = ([], [])
            for _ in range(scale.live_rounds):
                for server, found in zip((start, plain), rounds):
                    found.append(client.measured(partial(_round, server, count, scale)))
            figures += _figures(count, *rounds)
            clients += rounds[0]
    busiest = max(clients, key=lambda each: each.client_cpu)
    return Section(
        figures,
        f"live latency: every stream is a turn of {RATE} tokens/s through one `start_turn` process;"
        f" windows of {scale.live_seconds:g} s, median of {scale.live_rounds} rounds. Baseline: the"
        " same frames from a plain generator on the same server, nothing journaled. The client's"
        f" own part is inside: at most {busiest.client_cpu:.0%} of a core, p99"
        f" {busiest.client_p99:.2f} ms from waking up to reading a socket.",
    )


def _figures(count: int, ours: list[_Round], plain: list[_Round]) -> list[Figure]:
    p50, plain_p50 = (median(each.p50 for each in found) for found in (ours, plain))
    p99, plain_p99 = (median(each.p99 for each in found) for found in (ours, plain))
    achieved = median(each.achieved for each in ours)
    name = f"latency at {count} stream{'s' * (count > 1)}"
    judged = count == EXPECTED_AT_STREAMS
    return [
        Figure(f"{name}, p50 ms", f"{p50:.2f}", f"{plain_p50:.2f}", times(p50 / plain_p50)),
        Figure(
            f"{name}, p99 ms ({achieved:.0%} of {count * RATE:,} tokens/s came)",
            f"{p99:.2f}",
            f"{plain_p99:.2f}",
            times(p99 / plain_p99),
            f"< {EXPECTED_P99_MS}" if judged else "",
            p99 < EXPECTED_P99_MS if judged else None,
        ),
    ]


def _round(server: Container, count: int, scale: Scale) -> _Round | None:
    """One round; None if no token came in its window."""
    seconds = scale.live_seconds
    tokens = int((scale.settle_seconds + seconds + _SPARE_SECONDS) * RATE)
    prompt = f"tokens={tokens} rate={RATE}"
    streams = [Stream.open(server.port, new_turn_id(), prompt) for _ in range(count)]
    since = time.monotonic_ns() + int(scale.settle_seconds * 1e9)
    client.read(streams, until=since)
    until = since + int(seconds * 1e9)
    work = client.read(streams, until=until)
    lags = [lag for stream in streams for lag in stream.lags_ms(since)]
    client.read(streams, until=until + int(60e9))  # the turns' ends, so that rounds do not mix
    client.close(streams)
    if not lags:
        return None
    return _Round(
        p50=percentile(lags, 50),
        p99=percentile(lags, 99),
        achieved=len(lags) / (count * RATE * seconds),
        client_cpu=work.cpu_share,
        client_p99=percentile(work.queued_ms, 99),
    )
