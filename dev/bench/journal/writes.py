"""What Firestore bills for 1,000 tokens, renewals and everything else of the turn included."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from dev.bench.journal import client, processes
from dev.bench.journal.baseline import EventDocuments
from dev.bench.journal.client import Stream, new_turn_id
from dev.bench.journal.counting import Bill, CountingProxy
from dev.bench.journal.report import Figure, Section, times
from dev.bench.journal.scale import RATE, Scale
from dev.project import LOCAL_PROJECT
from functions import firestore

EXPECTED_WRITES = 20
_FLUSHED_AT_ONCE = 50
"""Tokens that 0.25 s of a turn bring."""
_SETTLE_SECONDS = 0.5


def measure(storage: str, scale: Scale) -> Section:
    """Count at a gRPC proxy in front of each process."""
    tokens = scale.counted_tokens
    owner, follower = _ours(storage, tokens)
    baseline = _baseline(storage, tokens)
    thousands = tokens / 1000
    stand_in = owner.written.pop(firestore.APP_CHECK_TOKENS, 0)
    writes, plain = owner.written.total() / thousands, baseline.written.total() / thousands
    parts = ", ".join(f"{count} in `{name}`" for name, count in owner.written.most_common())
    return Section(
        [
            Figure(
                f"writes per 1,000 tokens of a turn of {tokens:,}",
                f"{writes:.1f}",
                f"{plain:.0f}",
                times(plain / writes),
                f"≤ {EXPECTED_WRITES}",
                writes <= EXPECTED_WRITES,
            ),
            Figure(
                "reads per 1,000 tokens, of the owner",
                f"{owner.reads / thousands:.1f}",
                f"{baseline.reads / thousands:.0f}",
            ),
            Figure(
                "reads per 1,000 tokens, of a follower in another process",
                f"{follower.reads / thousands:.1f}",
                "1000",
                times(1000 / (follower.reads / thousands)),
            ),
        ],
        f"writes, reads: one turn of {tokens:,} tokens at {RATE}/s through `start_turn`, followed"
        " by one `resume_turn`; documents counted at a gRPC proxy in front of each process."
        f" The owner's writes were {parts}: renewals included, and without {stand_in} of the App"
        f" Check stand-in. Baseline: transactions of {_FLUSHED_AT_ONCE} event documents each,"
        " without renewals; its follower reads every document once.",
    )


def _ours(storage: str, tokens: int) -> tuple[Bill, Bill]:
    with ExitStack() as stack:
        owner = stack.enter_context(CountingProxy(storage))
        follower = stack.enter_context(CountingProxy(storage))
        start = stack.enter_context(processes.function("start_turn", owner.address))
        resume = stack.enter_context(processes.function("resume_turn", follower.address))
        turn_id = new_turn_id()
        streams = [Stream.open(start.port, turn_id, f"tokens={tokens} rate={RATE}")]
        client.read(streams, until=time.monotonic_ns() + int(1e9))
        streams.append(Stream.open(resume.port, turn_id))
        client.read(streams, until=time.monotonic_ns() + int((tokens / RATE + 30) * 1e9))
        if not all(stream.ended for stream in streams):
            raise RuntimeError("the counted turn did not end in time")
        time.sleep(_SETTLE_SECONDS)  # what the owner may still send after the terminal event
        client.close(streams)
        return owner.bill, follower.bill


def _baseline(storage: str, tokens: int) -> Bill:
    from google.cloud.firestore import Client

    with CountingProxy(storage) as proxy:
        os.environ["FIRESTORE_EMULATOR_HOST"] = proxy.address
        try:
            database = Client(project=LOCAL_PROJECT)
        finally:
            os.environ["FIRESTORE_EMULATOR_HOST"] = storage
        turn = EventDocuments(database, new_turn_id())
        for first in range(1, tokens + 1, _FLUSHED_AT_ONCE):
            turn.append(first, [" word"] * min(_FLUSHED_AT_ONCE, tokens + 1 - first))
        database.close()
        return proxy.bill
