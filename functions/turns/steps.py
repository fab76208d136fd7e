"""The ledger of steps: one document per finished step, written by the commit that finishes it.

S1: a step's outcome is recorded once, by a fenced append; a re-run returns it without running.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from functions import firestore
from functions.errors import Gone, TurnFailed
from functions.turns import record

if TYPE_CHECKING:
    from google.cloud.firestore import CollectionReference, DocumentReference

OK, FAILED = "ok", "error"

MAX_RESULT_BYTES = 512 * 1024
"""The largest JSON a step may record."""


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step. `result` is JSON text; of a failed step, its exception's type."""

    position: int
    kind: Literal["model"]
    name: str
    args_hash: str
    status: str
    result: str

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
            "idempotencyKey": f"{run_id}:{self.position}",
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
        )


def hash_of(args: Any) -> str:
    """SHA-256 of the canonical JSON of a step's arguments. Raises TypeError or ValueError."""
    canonical = json.dumps(args, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def to_json(position: int, value: Any) -> str:
    """A step's result as JSON text. Raises TurnFailed when JSON or its bound cannot carry it."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise TurnFailed(
            "bad_step_result", f"step {position} returned a value that JSON cannot carry"
        ) from None
    if len(text) > MAX_RESULT_BYTES:
        raise TurnFailed(
            "step_result_too_large",
            f"step {position} returned {len(text)} bytes of JSON; at most {MAX_RESULT_BYTES}",
        )
    return text


def document(key: str, position: int) -> DocumentReference:
    """The document of the step at a position."""
    steps: CollectionReference = record.reference(key).collection(firestore.STEPS)
    return steps.document(f"{position:06d}")


def load_finished(key: str, count: int) -> dict[int, Step]:
    """The `count` finished steps of a turn, by position.

    Raises Gone when one is missing: it would run again. Raises StorageUnavailable.
    """
    if count == 0:
        return {}
    collection = record.reference(key).collection(firestore.STEPS)
    snapshots = firestore.read(lambda timeout: list(firestore.documents(collection, timeout)))
    steps = [Step.from_fields(snapshot.to_dict() or {}) for snapshot in snapshots]
    finished = {step.position: step for step in steps}
    if set(finished) != set(range(1, count + 1)):
        raise Gone("a finished step of the turn is past its retention")
    return finished
