"""What a turn costs in Firestore's units, from what it left there. Pure.

Counted: what each document shows of its own writes. Only renewals of owners that came before the
last one leave no trace; they are reckoned from the time those owners wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from functions.turns.record import WAITING
from operate.reading import Found

DEFAULT_LEASE_SECONDS = 9.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Documents written (each write is billed), stored, and read by one replay from the start."""

    chunk_writes: int
    step_writes: int
    turn_writes: int
    """Created, each takeover or decision, the end or the wait."""
    renewals: int
    reckoned_renewals: int
    """Of owners before the last one."""
    stored_documents: int
    stored_bytes: int
    text_bytes: int

    @property
    def writes(self) -> int:
        """All of them."""
        known = self.chunk_writes + self.step_writes + self.turn_writes
        return known + self.renewals + self.reckoned_renewals

    @property
    def replay_reads(self) -> int:
        """A client that was never there: the turn's document, and each chunk."""
        return 1 + self.chunk_writes


def of(found: Found) -> Cost:
    """Reckon a turn's cost."""
    turn = found.turn
    ends = 1 if turn.finished or turn.status == WAITING or turn.holder.seconds == 0 else 0
    return Cost(
        chunk_writes=len(found.chunks),
        # A model step is written once; a tool step when it starts, in each attempt, and ends.
        step_writes=sum(
            1 if one.step.kind == "model" else max(1, one.step.attempt) + one.step.finished
            for one in found.steps
        ),
        turn_writes=1 + (turn.holder.epoch - 1) + ends,
        renewals=turn.holder.beat,
        reckoned_renewals=_earlier_renewals(found),
        stored_documents=1 + len(found.chunks) + len(found.steps),
        stored_bytes=found.size
        + sum(one.size for one in found.chunks)
        + sum(one.size for one in found.steps),
        text_bytes=sum(len(one.chunk.frames) for one in found.chunks),
    )


def lines(cost: Cost) -> Iterator[str]:
    """The reckoning, one item a line."""
    yield f"writes   {cost.writes}"
    yield f"  {cost.chunk_writes} chunks of the journal"
    yield f"  {cost.step_writes} of steps"
    yield f"  {cost.turn_writes} of the turn: made, taken over, ended"
    yield f"  {cost.renewals} renewals of its last owner"
    if cost.reckoned_renewals:
        yield f"  about {cost.reckoned_renewals} renewals of owners before"
    yield f"reads    {cost.replay_reads} for one replay from the start"
    streamed = f"the stream's are {cost.text_bytes}"
    yield f"stored   {cost.stored_documents} documents, {cost.stored_bytes} bytes; {streamed}"
    yield f"deletes  {cost.stored_documents}, by TTL"


def _earlier_renewals(found: Found) -> int:
    """One every third of a lease, for as long as each earlier owner was seen to write."""
    period = (found.turn.holder.seconds or DEFAULT_LEASE_SECONDS) / 3
    total = 0
    for epoch, group in groupby(found.chunks, key=lambda one: one.chunk.epoch):
        chunks = list(group)
        if epoch < found.turn.holder.epoch:
            begun = found.created_at if epoch == 1 else chunks[0].at
            total += int((chunks[-1].at - begun).total_seconds() / period)
    return total
