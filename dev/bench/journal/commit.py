"""Committing 100 tokens: one chunk, beside one document per event."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from dev.bench.journal import ours
from dev.bench.journal.baseline import EventDocuments
from dev.bench.journal.client import new_turn_id
from dev.bench.journal.ours import Journal
from dev.bench.journal.report import Figure, Section, times
from dev.bench.journal.scale import Scale
from functions import firestore

TOKENS = 100
EXPECTED_RATIO = 10


def measure(_storage: str, scale: Scale) -> Section:
    """Time each design in turn, round after round, each time on a new turn."""
    ours.ready()
    words = [f" word{number}" for number in range(TOKENS)]
    chunk: list[float] = []
    documents: list[float] = []
    singles: list[float] = []
    for number in range(scale.commit_warm_up + scale.commit_rounds):
        counts = number >= scale.commit_warm_up
        spent = _chunk(words), _documents(words)
        if counts:
            chunk.append(spent[0])
            documents.append(spent[1])
        if counts and len(singles) < scale.single_rounds:
            singles.append(_singles(words))
    one, together, each = (median(values) * 1000 for values in (chunk, documents, singles))
    name = f"commit of {TOKENS} tokens, ms"
    return Section(
        [
            Figure(
                f"{name}; baseline: {TOKENS} documents in one transaction",
                f"{one:.2f}",
                f"{together:.1f}",
                times(together / one),
                f"≥ {EXPECTED_RATIO}x",
                together / one >= EXPECTED_RATIO,
            ),
            Figure(
                f"{name}; baseline: a transaction per event",
                f"{one:.2f}",
                f"{each:.0f}",
                times(each / one),
            ),
        ],
        f"commit: from {TOKENS} texts to the answer of the commit, encoding included, each time on"
        f" a new turn. Medians of {len(chunk)} interleaved rounds ({len(singles)} with a"
        f" transaction per event) after {scale.commit_warm_up} to warm up.",
    )


def _chunk(words: list[str]) -> float:
    journal = Journal(new_turn_id())
    return _timed(lambda: journal.append(words))


def _documents(words: list[str]) -> float:
    turn = EventDocuments(firestore.client(), new_turn_id())
    return _timed(lambda: turn.append(1, words))


def _singles(words: list[str]) -> float:
    turn = EventDocuments(firestore.client(), new_turn_id())

    def each() -> None:
        for number, word in enumerate(words, start=1):
            turn.append(number, [word])

    return _timed(each)


def _timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
