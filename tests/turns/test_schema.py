"""R2: documents that another version of this package wrote, older or newer.

The documents here are frozen: they are what the first version wrote. Never add a field to them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.cloud.firestore import DocumentReference, FieldFilter

from functions import firestore
from functions.errors import NewerSchema
from functions.turns import cancel, decide, record, steps
from functions.turns.journal import Chunk
from functions.turns.lease import Holder
from functions.turns.owners import Owners
from functions.turns.program import Agent
from functions.turns.steps import Step
from functions.turns.takeover import Taken
from functions.wire import sse
from functions.wire.events import Token
from tests.conftest import Serve
from tests.support.client import folded, new_turn_id, resume, start
from tests.support.lapse import lapse
from tests.turns.conftest import Create, settings

NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=24)

TURN: dict[str, Any] = {
    "schema": 1,
    "turnId": "0b6c7a1e-5d0c-4b5e-9a52-1f4d3c2b1a00",
    "owner": "app:1:1:web:1:0b6c7a1e-5d0c-4b5e-9a52-1f4d3c2b1a00",
    "runId": "00112233445566778899aabbccddeeff",
    "requestHash": "f" * 64,
    "prompt": '[["model", "one", [["say", "A"]], 1], ["say", "B"]]',
    "sessionId": None,
    "status": "running",
    "lease": {"owner": "0123456789abcdef", "epoch": 1, "seconds": 1, "beat": 0},
    "window": 10_000,
    "agentVersion": "1",
    "waitingUntil": None,
    "expireAt": LATER,
}
CHUNK: dict[str, Any] = {
    "index": 0,
    "epoch": 1,
    "nonce": "0123456789abcdef",
    "after": 0,
    "first": 1,
    "last": 1,
    "length": 1,
    "boundary": {"to": 1, "length": 1, "steps": 1, "epoch": 1},
    "frames": sse.encode(1, Token("A")),
    "expireAt": LATER,
}
STEP: dict[str, Any] = {
    "position": 1,
    "kind": "model",
    "name": "one",
    "argsHash": steps.hash_of([["say", "A"]]),
    "status": "ok",
    "result": b"1",
    "attempt": 1,
    "decideBy": None,
    "decision": None,
    "idempotencyKey": "00112233445566778899aabbccddeeff:1",
    "epoch": 1,
    "last": 1,
    "expireAt": LATER,
}


def test_every_kind_of_document_of_the_first_version_is_read() -> None:
    """A field that came later has a default that says what its absence meant."""
    turn = record.from_fields("k", TURN, created_at=NOW, read_at=NOW, updated_at=NOW)
    assert turn.holder == Holder("0123456789abcdef", 1, 1)
    assert Chunk.from_fields(CHUNK).last == 1
    assert Step.from_fields(STEP).finished


def as_first_written(turn: DocumentReference) -> None:
    """Take away from a turn's documents all that the first version did not write."""
    kinds = {firestore.EVENTS: CHUNK, firestore.STEPS: STEP}
    documents = [(turn, TURN)]
    for group, fields in kinds.items():
        documents += [(one.reference, fields) for one in turn.collection(group).stream()]
    for reference, fields in documents:
        stored = reference.get().to_dict() or {}
        assert fields.keys() <= stored.keys(), "a field of the first version is not written now"
        reference.set({name: stored[name] for name in fields})


@pytest.mark.emulator
def test_a_turn_of_the_first_version_is_finished_by_this_one(serve: Serve, storage: None) -> None:
    """In flight while the version changed: taken over, its recorded step is not run again."""
    assert storage is None
    owner, turn_id = serve("start_turn"), new_turn_id()
    with start(owner, turn_id, [["model", "one", [["say", "A"]], 1], ["count", 1, 40, 40]]) as cut:
        cut.read_until(5)
        owner.kill()
    turns = firestore.client().collection(firestore.TURNS)
    (snapshot,) = turns.where(filter=FieldFilter("turnId", "==", turn_id)).stream()
    as_first_written(snapshot.reference)
    lapse(snapshot.id)
    with resume(serve("resume_turn"), turn_id) as stream:
        stream.read_to_end()
        text = folded(stream).text
    assert text == "A[one: 1]" + "".join(f"{n} " for n in range(1, 41))


@pytest.mark.emulator
def test_a_turn_of_a_newer_version_is_left_alone(storage: None, create: Create) -> None:
    """Whatever is asked of it: 503, not 500, though its other documents may be of any form."""
    assert storage is None
    turn = newer(create()).turn
    owners = Owners(lambda: Agent(print), settings())
    with pytest.raises(NewerSchema):
        cancel.cancel(turn.owner, turn.turn_id)
    with pytest.raises(NewerSchema):
        decide.decide(turn.owner, turn.turn_id, 1, "approve", 0, owners=owners, settings=settings())
    with pytest.raises(NewerSchema):
        record.load(turn.key)


def newer(taken: Taken) -> Taken:
    """Let a turn and its step look as if a newer version had written them."""
    record.reference(taken.turn.key).update({"schema": record.SCHEMA + 1})
    steps.document(taken.turn.key, 1).set({"place": 1})
    return taken
