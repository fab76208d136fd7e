"""The names in code, in the index file and in the rules are the same."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from functions import firestore
from functions.agents import demo_tools
from functions.turns import quota, record, sessions, steps
from functions.turns.journal import Boundary, Chunk
from functions.turns.lease import Holder
from functions.turns.limits import Tally
from functions.turns.record import Request
from functions.turns.steps import Step

ROOT = Path(__file__).parents[1]
NOW = datetime.now(UTC)

STORED: dict[str, dict[str, Any]] = {
    firestore.TURNS: record.new_fields(
        "owner",
        "turn",
        Request("prompt", None),
        Holder.first(9),
        agent_version="1",
        now=NOW,
        retention_hours=24,
    ),
    firestore.EVENTS: Chunk(0, 1, "n", 0, 1, 1, 0, Boundary(), b"").to_fields(NOW),
    firestore.STEPS: {
        **Step(1, "model", "m", "h", steps.OK, "1").to_fields(
            run_id="r", last=1, epoch=1, expire_at=NOW
        ),
        steps.NOTES: [],
    },
    firestore.SESSIONS: sessions.new_fields("uid:ada", "chat", {"key": "k", "id": "t"}, NOW),
    firestore.OWNERS: {
        **quota.new_fields("uid:ada", "k", Tally()),
        firestore.EXPIRE_AT: NOW,
    },
    firestore.APP_CHECK_TOKENS: {"nonce": "n", firestore.EXPIRE_AT: NOW},
}


def overrides() -> dict[tuple[str, str], dict[str, Any]]:
    """The field overrides of the index file."""
    declared = json.loads((ROOT / "firestore.indexes.json").read_text())
    return {(row["collectionGroup"], row["fieldPath"]): row for row in declared["fieldOverrides"]}


def test_every_stored_field_is_declared_and_nothing_else() -> None:
    """A field without an override would be indexed: writes cost more, and `expireAt` hot-spots."""
    stored = {(group, field) for group, fields in STORED.items() for field in fields}
    assert set(overrides()) == stored


def test_every_collection_expires() -> None:
    """Deploying an index file without a TTL policy would remove one made by hand."""
    expiring = {group for (group, _field), row in overrides().items() if row.get("ttl")}
    assert expiring == set(STORED)


def test_the_rules_name_every_top_level_collection() -> None:
    """Clients can reach none of them."""
    rules = (ROOT / "firestore.rules").read_text()
    named = set(re.findall(r"match /([a-z_]+)/\{path=\*\*\}", rules))
    ours = set(STORED) - {firestore.EVENTS, firestore.STEPS}
    assert ours | {demo_tools.TICKETS} == named
    assert "if true" not in rules
    assert rules.count("allow ") == rules.count("if false")
    guarded = re.search(r"return collection in \[(.*?)\]", rules, re.DOTALL)
    assert guarded is not None
    assert set(re.findall(r"'([a-z_]+)'", guarded[1])) == named
