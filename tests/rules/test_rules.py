"""`firestore.rules` by the official `@firebase/rules-unit-testing`: what clients can reach."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from dev import node
from functions import firestore
from functions.agents import demo_tools

pytestmark = pytest.mark.emulator

RULES = (Path(__file__).parents[2] / "firestore.rules").read_text()
BLOCK = re.compile(r"    // --- agent-turns\b.*// --- end of agent-turns\n", re.DOTALL)

TOP = [firestore.TURNS, firestore.SESSIONS, firestore.OWNERS, firestore.APP_CHECK_TOKENS]
OURS = [
    *(f"{name}/x" for name in (*TOP, demo_tools.TICKETS)),
    f"{firestore.TURNS}/x/{firestore.EVENTS}/00000000",
    f"{firestore.TURNS}/x/{firestore.STEPS}/000001",
    f"{firestore.SESSIONS}/x/of_later/x",
]
"""A document of each collection of ours."""
THEIRS = ["posts/p", "posts/p/comments/c", "users/owner", "users/somebody", "admin/a"]
"""Documents of a project that has rules of its own."""

CLIENTS: dict[str, Any] = {
    "nobody": None,
    "anonymous": {"uid": "guest", "claims": {"firebase": {"sign_in_provider": "anonymous"}}},
    "owner": {"uid": "owner", "claims": {"email": "o@example.com", "email_verified": True}},
    "somebody": {"uid": "somebody", "claims": {}},
    "administrator": {"uid": "root", "claims": {"admin": True, "role": "admin", "roles": ["all"]}},
}

OWN_RULES = """\
rules_version = '2';
service cloud.firestore {
  match /databases/{database}/documents {
    match /posts/{post} {
      allow read: if true;
      allow write: if request.auth.token.admin == true;
    }
    match /{path=**}/comments/{comment} {
      allow read: if request.auth != null;
    }
    match /users/{uid} {
      allow read, write: if request.auth.uid == uid;
    }
%s  }
}
"""
"""The rules of a project before ours come into it; `%s` is where something may be added."""
WIDE = """\
    match /{document=**} {
      allow read: if request.auth != null;
    }
"""
GUARDED = """\
    match /{collection}/{path=**} {
      allow read: if !isAgentTurns(collection) && request.auth != null;
    }
"""
"""As docs/guides/rules.md has it."""

Try = tuple[str, str, str]


def block() -> str:
    """What a project copies into its own rules."""
    found = BLOCK.search(RULES)
    assert found is not None
    return found[0]


def tries(documents: list[str], *, groups: bool = True) -> list[Try]:
    """Every way of every client to each of the documents and their collections."""
    given = []
    for client in CLIENTS:
        for path in documents:
            collection = path.rpartition("/")[0]
            given += [(client, what, path) for what in ("get", "create", "update", "delete")]
            given.append((client, "list", collection))
            if groups:
                given.append((client, "group", collection.rpartition("/")[2]))
    return given


@pytest.fixture
def attempt(firestore_emulator: str) -> Any:
    """Run tries under rules, each in a project of its own: what came of them."""

    def run(rules: str, wanted: list[Try]) -> dict[Try, str]:
        host, _, port = firestore_emulator.partition(":")
        asked = {
            "host": host,
            "port": int(port),
            "project": f"demo-rules-{uuid.uuid4().hex[:12]}",
            "rules": rules,
            "clients": CLIENTS,
            "seed": [*OURS, *THEIRS],
            "tries": wanted,
        }
        ended = subprocess.run(
            [node.locate(), str(node.RULES / "try.js")],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert ended.returncode == 0, ended.stderr
        came = json.loads(ended.stdout)
        assert set(came) <= {"allowed", "denied"}, came
        return dict(zip(wanted, came, strict=True))

    return run


def test_clients_can_do_nothing_with_our_documents(attempt: Any) -> None:
    """Not get, list, query across, create, change or delete one, whoever they are."""
    came = attempt(RULES, tries([*OURS, *THEIRS]))
    assert set(came.values()) == {"denied"}


def test_our_block_leaves_a_projects_own_rules_as_they_are(attempt: Any) -> None:
    """What was allowed and denied of theirs still is; ours is closed."""
    before = attempt(OWN_RULES % "", tries(THEIRS))
    assert set(before.values()) == {"allowed", "denied"}
    after = attempt(OWN_RULES % block(), [*tries(THEIRS), *tries(OURS)])
    assert {one: after[one] for one in before} == before
    assert {after[one] for one in tries(OURS)} == {"denied"}


def test_a_wide_rule_of_theirs_opens_ours(attempt: Any) -> None:
    """Rules are joined by "or": the block cannot take back what another rule gives."""
    came = attempt(OWN_RULES % (block() + WIDE), tries(OURS))
    opened = {one for one, what in came.items() if what == "allowed"}
    assert opened == {
        one for one in came if one[0] != "nobody" and one[1] in {"get", "list", "group"}
    }


def test_a_wide_rule_with_the_guard_opens_theirs_only(attempt: Any) -> None:
    """All that it opened of theirs stays open, but for queries across a collection group, which
    need a rule that names the group.
    """
    wide = attempt(OWN_RULES % WIDE, tries(THEIRS))
    guarded = attempt(OWN_RULES % (block() + GUARDED), [*tries(THEIRS), *tries(OURS)])
    assert {guarded[one] for one in tries(OURS)} == {"denied"}
    changed = {one[1:] for one in wide if wide[one] != guarded[one]}
    assert changed == {("group", name) for name in ("posts", "users", "admin")}


def test_the_guide_says_it_as_it_is_tested() -> None:
    """Its rules are these."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "rules.md").read_text()
    for rules in (WIDE, GUARDED):
        lines = [line[4:] for line in rules.splitlines()]
        assert "\n".join(lines) in guide
