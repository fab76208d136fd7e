"""A turn's story from its journal: who wrote which ids when, who took over, what is missing. Pure.

Ids, times and names only; texts, arguments and results are shown when they are asked for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from functions.turns.record import DELETED, Record
from functions.wire import sse
from functions.wire.sse import Frame
from operate.reading import Committed, Found, Recorded

SILENCE_SECONDS = 5.0
"""A longer pause between two commits is told."""


def lines(found: Found, *, text: bool = False) -> Iterator[str]:
    """The story, top to bottom."""
    yield from _head(found, text=text)
    yield ""
    yield f"{'committed (UTC)':<15} {'chunk':>5} {'ids':>15} {'epoch':>5} {'owner':<8} what"
    yield from _journal(found, text=text)
    if found.steps:
        yield ""
        yield "steps"
        for one in found.steps:
            yield from _step(one, text=text)


def standing(turn: Record) -> str:
    """A turn's status, and what it waits for."""
    if turn.expired:
        return f"{turn.status}, past its retention"
    if turn.status == DELETED:
        return "deleted: its places in the journal are kept until it expires"
    if turn.finished:
        return turn.status
    if turn.status == "waiting":
        until = turn.waiting_until
        late = turn.lapsed
        return f"waiting for a person until {day(until)}{', which is over' if late else ''}"
    if not turn.lapsed:
        return f"running, lease for another {turn.lapses_in:.1f} s"
    if turn.holder.seconds == 0:
        return f"running, released by its owner, free for {-turn.lapses_in:.1f} s"
    return f"running, its owner is gone for {-turn.lapses_in:.1f} s"


def day(at: datetime | None) -> str:
    """A time to the second, in UTC."""
    return "?" if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ")


def _head(found: Found, *, text: bool) -> Iterator[str]:
    turn = found.turn
    yield f"turn     {turn.key}"
    yield f"id       {turn.turn_id}"
    yield f"owner    {turn.owner}"
    yield f"run      {turn.run_id}"
    yield f"status   {standing(turn)}"
    yield f"created  {day(found.created_at)}, expires {day(turn.expire_at)}"
    yield f"epoch    {turn.holder.epoch}, held by {turn.holder.nonce[:8]}"
    yield f"agent    version {turn.agent_version}"
    if text:
        yield f"prompt   {json.dumps(turn.request.prompt, ensure_ascii=False)}"


def _journal(found: Found, *, text: bool) -> Iterator[str]:
    before: Committed | None = None
    expected = 0
    for one in found.chunks:
        chunk = one.chunk
        if chunk.index > expected:
            missing = _chunks(expected, chunk.index - 1)
            yield f"  gap: {missing} missing; readers below are told gone"
        if before is not None:
            silence = (one.at - before.at).total_seconds()
            if silence > SILENCE_SECONDS:
                yield f"  silence of {silence:.1f} s"
            if chunk.epoch > before.chunk.epoch:
                took = f"{chunk.nonce[:8]} took over {silence:.1f} s later"
                unused = f"ids {_ids(chunk.after + 1, chunk.first - 1)} are left out"
                yield f"  epoch {chunk.epoch}: {took}; {unused}"
        frames = list(sse.decode(chunk.frames))
        ids = _ids(chunk.first, chunk.last) if frames else "-"
        yield (
            f"{_time(one.at):<15} {chunk.index:>5} {ids:>15} {chunk.epoch:>5} "
            f"{chunk.nonce[:8]} {_what(frames)}"
        )
        if text:
            yield from _texts(frames)
        before, expected = one, chunk.index + 1
    if before is None:
        deleted = found.turn.status == DELETED
        yield "  its content was deleted" if deleted else "  nothing is committed yet"
    elif not before.chunk.terminal and found.turn.finished:
        yield "  gap: the end is missing"


def _what(frames: list[Frame]) -> str:
    """The events of a chunk, without what was said."""
    said: list[str] = []
    tokens = Counter(frame.type for frame in frames)["token"]
    if tokens:
        said.append(f"{tokens} token{'s' if tokens > 1 else ''}")
    for frame in frames:
        data = frame.data
        if frame.type == "rewind":
            said.append(f"rewind to {data['to']}")
        elif frame.type == "tool_end":
            said.append(f"tool_end {data['step']} {data['tool']} {data['status']}")
        elif frame.type.startswith("tool_"):
            said.append(f"{frame.type} {data['step']} {data['tool']}")
        elif frame.type == "done":
            said.append(f"done {data['reason']}")
        elif frame.type == "error":
            said.append(f"error {data['code']} ({data['correlationId']})")
    return ", ".join(said) or "no events"


def _texts(frames: list[Frame]) -> Iterator[str]:
    said = "".join(frame.data for frame in frames if frame.type == "token")
    if said:
        yield f"{'':<15} {json.dumps(said, ensure_ascii=False)}"
    for frame in frames:
        if frame.type != "token":
            yield f"{'':<15} {frame.type} {json.dumps(frame.data, ensure_ascii=False)}"


def _step(one: Recorded, *, text: bool) -> Iterator[str]:
    step = one.step
    decided = f", {step.decision}" if step.decision else ""
    waits = f", to decide by {day(step.decide_by)}" if step.status == "waiting" else ""
    yield (
        f"{step.position:>4} {step.kind:<5} {step.name} {step.status}{decided}{waits}; "
        f"begun by {step.attempt}, written by epoch {one.epoch} at {_time(one.written_at)}"
    )
    for note in one.notes:
        yield f"     note of {note['by']} at {day(note['at'])}: {note['text']}"
    if text and step.finished:
        yield f"     {step.result}"


def _ids(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _chunks(first: int, last: int) -> str:
    return f"chunk {first} is" if first == last else f"chunks {first}–{last} are"


def _time(at: datetime) -> str:
    return at.strftime("%H:%M:%S.%f")[:-3]
