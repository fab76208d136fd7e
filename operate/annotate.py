"""An operator's note on a step that is in doubt. It adds; the recorded outcome is never rewritten:
the model, the user and every replay have seen it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from functions import firestore
from functions.errors import StorageUnavailable, TurnConflict, UnknownStep
from functions.turns import record, steps
from functions.turns.steps import Step
from operate.reading import READ_SECONDS


def note(key: str, position: int, *, by: str, text: str) -> None:
    """Add a note to the step at `position`.

    Raises UnknownStep, TurnConflict when the step is not in doubt, NewerSchema,
    StorageUnavailable.
    """
    record.load(key, within_seconds=READ_SECONDS)
    document = steps.document(key, position)
    snapshot = firestore.read(
        lambda timeout: document.get(retry=None, timeout=timeout), within_seconds=READ_SECONDS
    )
    fields = snapshot.to_dict()
    if fields is None:
        raise UnknownStep(f"the turn has no step {position}")
    status = Step.from_fields(fields).status
    if status != steps.IN_DOUBT:
        raise TurnConflict(f"step {position} is {status}: only a step in doubt takes a note")
    from google.cloud.firestore import ArrayUnion

    added = {"at": datetime.now(UTC), "by": by, "text": text}
    # A step in doubt is final, so nobody else writes it; the precondition makes sure.
    unchanged = firestore.client().write_option(last_update_time=snapshot.update_time)
    answer = firestore.commit(
        lambda batch: batch.update(document, {steps.NOTES: ArrayUnion([added])}, option=unchanged),
        timeout_seconds=READ_SECONDS,
    )
    if answer.kind is not firestore.Kind.APPLIED:
        raise StorageUnavailable(
            f"the note may not be stored ({answer.cause}): look, then try again"
        )
