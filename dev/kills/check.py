"""What is left of a turn, in Firestore and outside, and what is wrong with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.cloud.firestore import FieldFilter

from dev.kills import history
from dev.kills.effects import COUNTERS
from dev.kills.subject import Subject
from functions.firestore import SESSIONS, STEPS, TURNS
from functions.turns.tools import Policy
from functions.wire.sse import Frame

if TYPE_CHECKING:
    from google.cloud.firestore import Client as Storage

ENDINGS = {
    Policy.ONCE: {"ok", "in_doubt"},
    Policy.IDEMPOTENT: {"ok"},
    Policy.TRANSACTIONAL: {"ok"},
}
"""What may become of a step whose container was killed."""


@dataclass(frozen=True)
class State:
    """A turn as it stands: its epoch (0: there is none), its steps, its effects."""

    epoch: int = 0
    ended: bool = False
    steps: Mapping[int, str] = field(default_factory=dict)
    calls: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The keys of the calls that were made, by position."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """What the transactional tool counted, by position."""
    messages: Sequence[Any] = ()
    """What the turn left in its session."""


def look(subject: Subject, storage: Storage, turn_id: str, path: Path) -> State:
    """Read what is there of a turn."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    calls: dict[int, list[str]] = {}
    for key in lines:
        calls.setdefault(int(key.rpartition(":")[2]), []).append(key)
    of_the_turn = FieldFilter("turnId", "==", turn_id)
    found = list(storage.collection(TURNS).where(filter=of_the_turn).stream())
    if not found:
        return State(calls=calls)
    (turn,) = found
    fields = turn.to_dict() or {}
    documents = [one.to_dict() or {} for one in turn.reference.collection(STEPS).stream()]
    counts = {}
    for position, policy in subject.tools.items():
        if policy is Policy.TRANSACTIONAL:
            key = f"{fields['runId']}:{position}"
            counter = storage.collection(COUNTERS).document(key).get()
            counts[position] = int((counter.to_dict() or {}).get("count", 0))
    return State(
        epoch=fields["lease"]["epoch"],
        ended=fields["status"] not in {"running", "waiting"},
        steps={one["position"]: one["status"] for one in documents},
        calls=calls,
        counts=counts,
        messages=_messages(storage, turn_id) if subject.remembers else (),
    )


def _messages(storage: Storage, turn_id: str) -> list[Any]:
    """What a turn left in the session that has its id."""
    of_the_turn = FieldFilter("sessionId", "==", turn_id)
    sessions = list(storage.collection(SESSIONS).where(filter=of_the_turn).stream())
    entries = [one for each in sessions for one in (each.to_dict() or {})["history"].values()]
    return [message for entry in entries for message in json.loads(entry["messages"])]


def problems(
    subject: Subject,
    state: State,
    replay: Sequence[Frame],
    *,
    text: str,
    replayed: str,
    uninterrupted: str,
) -> list[str]:
    """Say all that is wrong with a turn that ended: nothing, if the promises hold.

    `text` is that of the client that saw the kills, `replayed` that of one that came afterwards.
    """
    wrong = []
    ends: dict[int, list[str]] = {}
    for frame in replay:
        if frame.type == "tool_end":
            ends.setdefault(frame.data["step"], []).append(frame.data["status"])
    if replay[-1].type != "done" or replay[-1].data["reason"] != "stop" or not state.ended:
        wrong.append(f"it ended with {replay[-1].type} {replay[-1].data}")
    for position, policy in subject.tools.items():
        wrong += _step(position, policy, state, ends.get(position, []))
    if text != replayed:
        wrong.append(f"the client has {text!r}, the journal {replayed!r}")
    told = {int(at): status for at, status in re.findall(r" (\d):([a-z_]+)", text)}
    if told != {position: status for position, (*_, status) in ends.items()}:
        wrong.append(f"the agent was told {told}, the journal says {ends}")
    if text.replace("in_doubt", "ok") != uninterrupted:
        wrong.append(f"the text is {text!r}, uninterrupted {uninterrupted!r}")
    return wrong


def asked_twice(subject: Subject, found: Sequence[State], state: State) -> list[str]:
    """Say which model calls were made again although they were recorded when a kill was found."""
    return [
        f"model call {position} was made again after it was recorded"
        for position in subject.models
        for then in found
        if then.steps.get(position) == "ok"
        and len(state.calls.get(position, [])) != len(then.calls.get(position, []))
    ]


def other_messages(
    messages: Sequence[Any], path: Path, uninterrupted: Sequence[Any], its_path: Path
) -> list[str]:
    """Say whether a turn remembers something else than one that nothing happened to."""
    mine = history.comparable(list(messages), str(path))
    others = history.comparable(list(uninterrupted), str(its_path))
    wrong = []
    if mine != others:
        wrong.append(f"it remembers {mine}, uninterrupted {others}")
    times = history.times(list(messages))
    if times != sorted(times):
        wrong.append(f"its messages are not in order: {times}")
    return wrong


def _step(position: int, policy: Policy, state: State, ends: Sequence[str]) -> list[str]:
    calls = state.calls.get(position, [])
    name = f"step {position} ({policy.value})"
    if len(ends) != 1:
        return [f"{name}: outcomes {list(ends)}"]
    (status,) = ends
    wrong = []
    if status != state.steps.get(position):
        wrong.append(f"{name}: told {status}, recorded {state.steps.get(position)}")
    if status not in ENDINGS[policy]:
        wrong.append(f"{name}: {status}")
    if policy is Policy.ONCE:
        most = Counter(calls).total()
        if most > 1 or (status == "ok" and most != 1):
            wrong.append(f"{name}: {status} after {most} effects")
    elif len(set(calls)) != 1:
        wrong.append(f"{name}: called with keys {sorted(set(calls))}")
    if policy is Policy.TRANSACTIONAL and state.counts[position] != 1:
        wrong.append(f"{name}: {state.counts[position]} effects")
    return wrong
