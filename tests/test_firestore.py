"""Reads: what passes is tried again, and what does not is said."""

from __future__ import annotations

import json
import uuid

import pytest

from functions import firestore
from functions.errors import StorageUnavailable
from functions.turns import record
from tests.support.firestore_proxy import Answer, FirestoreProxy
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.emulator

NOBODYS = uuid.uuid4().hex
"""The key of a turn that is not there."""


@pytest.mark.parametrize(
    "status",
    [
        "ABORTED",
        "CANCELLED",
        "DEADLINE_EXCEEDED",
        "INTERNAL",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "UNKNOWN",
    ],
)
def test_a_read_is_tried_again_after_what_passes(
    faulty_storage: FirestoreProxy, status: str
) -> None:
    """A connection that the other side closed answers CANCELLED."""
    rule = faulty_storage.inject("BatchGetDocuments", Answer(status), times=2)
    assert record.load(NOBODYS, within_seconds=PATIENCE_SECONDS) is None
    assert rule.fired == 2


@pytest.mark.parametrize("status", ["PERMISSION_DENIED", "FAILED_PRECONDITION", "NOT_FOUND"])
def test_a_read_that_is_refused_says_so_once_in_the_log(
    faulty_storage: FirestoreProxy,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: str,
) -> None:
    """The caller is told to come back; whoever operates this, what is missing: a role, an index, a
    database.
    """
    monkeypatch.setattr(firestore, "TRY_SECONDS", firestore.READ_SECONDS)  # one try, however late
    rule = faulty_storage.inject("BatchGetDocuments", Answer(status))
    with pytest.raises(StorageUnavailable):
        record.load(NOBODYS)
    assert rule.fired == 1
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    named = "".join(word.capitalize() for word in status.split("_"))
    assert [line["cause"] for line in lines if line["severity"] == "ERROR"] == [named]
