"""The ledger of steps: one document for each step, written by fenced appends alone.

- S1: a step's outcome is recorded once, by a fenced append; a re-run returns it without running.
- S2: a tool is called only after its `tool_start` is committed and the lease was found alive.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from functions import firestore
from functions.errors import Gone, TurnFailed
from functions.turns import record
from functions.turns.tools import Policy
from functions.wire import values

if TYPE_CHECKING:
    from google.cloud.firestore import CollectionReference, DocumentReference

OK, FAILED, DENIED, EXPIRED = "ok", "error", "denied", "expired"
TIMEOUT, IN_DOUBT = "timeout", "in_doubt"
STARTED, WAITING = "started", "waiting"
FINAL = frozenset({OK, FAILED, DENIED, EXPIRED, TIMEOUT, IN_DOUBT})

APPROVE, DENY = "approve", "deny"

NOTES = "notes"
"""Of a step in doubt: what operators found out (`operate/annotate.py`). No owner reads it."""

MAX_RESULT_BYTES = 512 * 1024
"""The largest JSON a step may record."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step as recorded. `result` is JSON text, meaningful once the status is final."""

    position: int
    kind: Literal["model", "tool"]
    name: str
    args_hash: str
    status: str
    result: str = "null"
    attempt: int = 1
    """How many owners have begun it."""
    decide_by: datetime | None = None
    """Until when a person may decide it."""
    decision: str | None = None
    """What a person decided: `approve` or `deny`."""
    policy: str | None = None
    """Of a tool step that was begun: what "once" meant then."""

    @property
    def finished(self) -> bool:
        """Whether it has its one outcome."""
        return self.status in FINAL

    def to_fields(
        self, *, run_id: str, last: int, epoch: int, expire_at: datetime
    ) -> dict[str, Any]:
        """As stored. `last` is the id of the step's last event."""
        return {
            "position": self.position,
            "kind": self.kind,
            "name": self.name,
            "argsHash": self.args_hash,
            "status": self.status,
            "result": self.result.encode(),
            "attempt": self.attempt,
            "decideBy": self.decide_by,
            "decision": self.decision,
            "policy": self.policy,
            "idempotencyKey": idempotency_key(run_id, self.position),
            "epoch": epoch,
            "last": last,
            firestore.EXPIRE_AT: expire_at,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Step:
        """Read a stored step."""
        return cls(
            position=fields["position"],
            kind=fields["kind"],
            name=fields["name"],
            args_hash=fields["argsHash"],
            status=fields["status"],
            result=fields["result"].decode(),
            attempt=fields["attempt"],
            decide_by=fields["decideBy"],
            decision=fields["decision"],
            policy=fields.get("policy"),
        )


class Move(enum.Enum):
    """What an owner does with a tool step that its agent has come to."""

    REPLAY = "return the recorded outcome"
    RUN = "commit the start, then call the tool"
    DOUBT = "reconcile, or record that nobody can know"
    WAIT = "ask a person, and end the response"
    DENY = "record that a person denied it"
    EXPIRE = "record that nobody decided in time"


def next_move(
    recorded: Step | None, policy: Policy, *, needs_approval: bool, now: datetime
) -> Move:
    """Decide what comes of a step that is recorded so; `now` is the server's time."""
    if recorded is None:
        return Move.WAIT if needs_approval else Move.RUN
    if recorded.finished:
        return Move.REPLAY
    if recorded.status == STARTED:
        # New code may call its tool again; a call of the code before may not be.
        once = Policy.ONCE.value in {policy.value, recorded.policy}
        return Move.DOUBT if once else Move.RUN
    if recorded.decision is not None:
        return Move.RUN if recorded.decision == APPROVE else Move.DENY
    if recorded.decide_by is not None and now >= recorded.decide_by:
        return Move.EXPIRE
    return Move.WAIT


def idempotency_key(run_id: str, position: int) -> str:
    """The same in every run of a step, and of no other step."""
    return f"{run_id}:{position}"


def hash_of(args: Any) -> str:
    """SHA-256 of the canonical JSON of a step's arguments. Raises TypeError or ValueError."""
    canonical = json.dumps(args, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def to_json(position: int, value: Any) -> str:
    """A step's result as JSON text. Raises TurnFailed when JSON or its bounds cannot carry it."""
    try:
        text = values.to_json(value)
    except (TypeError, ValueError):
        raise TurnFailed(
            "bad_step_result", f"step {position} returned a value that JSON cannot carry"
        ) from None
    if len(text) > MAX_RESULT_BYTES:
        raise TurnFailed(
            "step_result_too_large",
            f"step {position} returned {len(text)} bytes of JSON; at most {MAX_RESULT_BYTES}",
        )
    return text


def require_same(recorded: Step, kind: Literal["model", "tool"], name: str, args_hash: str) -> None:
    """Raise TurnFailed, which says what differs, when a re-run asks for something else."""
    if (recorded.kind, recorded.name) != (kind, name):
        raise TurnFailed(
            "agent_changed",
            f"step {recorded.position} was recorded as {recorded.kind} {recorded.name!r} "
            f"and is now {kind} {name!r}",
        )
    if recorded.args_hash != args_hash:
        raise TurnFailed(
            "agent_changed",
            f"step {recorded.position} ({name}) was recorded with other arguments",
        )


def collection(key: str) -> CollectionReference:
    """The collection of a turn's steps."""
    found: CollectionReference = record.reference(key).collection(firestore.STEPS)
    return found


def document(key: str, position: int) -> DocumentReference:
    """The document of the step at a position."""
    return collection(key).document(f"{position:06d}")


def load(key: str, position: int) -> Step | None:
    """One step, or None if it was never begun. Raises StorageUnavailable."""
    snapshot = firestore.read(
        lambda timeout: document(key, position).get(retry=None, timeout=timeout)
    )
    fields = snapshot.to_dict()
    return None if fields is None else Step.from_fields(fields)


def load_all(key: str, *, finished: int) -> dict[int, Step]:
    """The steps of a turn by position, of which `finished` must have an outcome.

    A position may be missing: of one response, calls that need nobody's approval are recorded
    before those that do. Raises Gone when a finished step is: it would run again. Raises
    StorageUnavailable.
    """
    snapshots = firestore.read(lambda timeout: list(firestore.documents(collection(key), timeout)))
    found = [Step.from_fields(snapshot.to_dict() or {}) for snapshot in snapshots]
    if sum(step.finished for step in found) != finished:
        raise Gone("a finished step of the turn is past its retention")
    return {step.position: step for step in found}
