"""Replaying a long finished turn over HTTP, beside a query of one document per event."""

from __future__ import annotations

import time
from statistics import median

from dev.bench.journal import client, ours, processes
from dev.bench.journal.baseline import EventDocuments
from dev.bench.journal.client import Download, new_turn_id
from dev.bench.journal.ours import Journal
from dev.bench.journal.report import Figure, Section, times
from dev.bench.journal.scale import Scale
from functions import firestore

EXPECTED_RATE = 200_000
_WARM_UP_ROUNDS = 3
_QUERIES = 3
"""The baseline takes seconds."""
_SHAPES = {"at 50 tokens a chunk (200/s)": 50, "at 800 tokens a chunk (32 KiB)": 800}


def measure(storage: str, scale: Scale) -> Section:
    """Download each turn several times, in turns with the baseline's query."""
    ours.ready()
    count = scale.replay_events
    words = [f" word{number % 1000}" for number in range(count)]
    turns = {shape: _journal(words, size) for shape, size in _SHAPES.items()}
    plain = EventDocuments(firestore.client(), new_turn_id())
    plain.fill(words)
    downloads: dict[str, list[Download]] = {shape: [] for shape in turns}
    queries: list[float] = []
    with processes.function("resume_turn", storage) as server:
        for turn_id in [*turns.values()] * _WARM_UP_ROUNDS:
            client.download(server.port, turn_id)
        for _ in range(scale.replay_rounds):
            for shape, turn_id in turns.items():
                downloads[shape].append(client.download(server.port, turn_id))
            if len(queries) < _QUERIES:
                queries.append(_query(plain, count))
    baseline = count / median(queries)
    return Section(
        [_figure(shape, found, count, baseline) for shape, found in downloads.items()],
        f"replay: {count:,} events from `resume_turn` over HTTP, from the request to the terminal"
        f" event, median of {scale.replay_rounds}. Baseline: one query of {count:,} event"
        " documents, encoded to frames in the process that asks; no HTTP.",
    )


def _figure(shape: str, found: list[Download], count: int, baseline: float) -> Figure:
    if any(each.events != count + 1 for each in found):
        raise RuntimeError(f"expected {count + 1} events, got {found}")
    seconds = median(each.seconds for each in found)
    rate = count / seconds
    return Figure(
        f"replay of {count:,} events {shape}, events/s",
        f"{rate:,.0f} ({found[0].size / seconds / 1e6:.1f} MB/s)",
        f"{baseline:,.0f}",
        times(rate / baseline),
        f"≥ {EXPECTED_RATE:,}",
        rate >= EXPECTED_RATE,
    )


def _journal(words: list[str], chunk_tokens: int) -> str:
    turn_id = new_turn_id()
    journal = Journal(turn_id)
    for start in range(0, len(words), chunk_tokens):
        journal.append(words[start : start + chunk_tokens])
    journal.finish()
    return turn_id


def _query(plain: EventDocuments, count: int) -> float:
    begun = time.monotonic()
    found = sum(1 for _ in plain.replay())
    if found != count:
        raise RuntimeError(f"expected {count} documents, got {found}")
    return time.monotonic() - begun
