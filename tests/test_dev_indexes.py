"""What `firebase deploy --only firestore:indexes` does, asked of firebase-tools' own code.

Its calls to Google's API are answered here from a list of what a project has, and kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dev import node
from dev.merge_indexes import merge
from dev.project import ROOT, ProblemError
from tests.support.patience import PATIENCE_SECONDS

INDEXES = json.loads((ROOT / "firestore.indexes.json").read_text())
GROUPS = "projects/p/databases/(default)/collectionGroups"

_DEPLOY = """
const [module, spec, had, options] = JSON.parse(process.argv[1]);
const { FirestoreApi } = require(module);
const calls = [];
const call = (verb) => async (url, body) => { calls.push([verb, url, body]); return { body: {} }; };
const api = new FirestoreApi();
api.apiClient = {
  get: async (url) => ({
    body: url.endsWith("/indexes") ? { indexes: had.indexes }
      : url.includes("/fields") ? { fields: had.fields } : {},
  }),
  patch: call("patch"), post: call("post"), delete: call("delete"),
};
api.deploy({ project: "p", ...options }, spec.indexes, spec.fieldOverrides)
  .then(() => console.log("\\n" + JSON.stringify(calls)))
  .catch((error) => { console.error(String(error)); process.exit(1); });
"""

THEIRS: dict[str, Any] = {
    "indexes": [
        {
            "name": f"{GROUPS}/posts/indexes/1",
            "queryScope": "COLLECTION",
            "fields": [
                {"fieldPath": "author", "order": "ASCENDING"},
                {"fieldPath": "at", "order": "DESCENDING"},
                {"fieldPath": "__name__", "order": "DESCENDING"},
            ],
        }
    ],
    "fields": [
        {
            "name": f"{GROUPS}/posts/fields/deleteAt",
            "indexConfig": {"indexes": []},
            "ttlConfig": {"state": "ACTIVE"},
        }
    ],
}
"""What a project had before: a composite index, and a TTL policy made by hand."""


def deploy(spec: Any, had: Any, **options: bool) -> list[list[Any]]:
    """The changes that a deployment of `spec` asks for in a project that has `had`."""
    module = node.PACKAGE / "lib" / "firestore" / "api.js"
    words = json.dumps([str(module), spec, had, {"nonInteractive": True, **options}])
    done = subprocess.run(
        [node.locate(), "-e", _DEPLOY, words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    calls: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return calls


def after(calls: list[list[Any]]) -> dict[str, Any]:
    """What the project has once these changes are made to an empty one."""
    fields = [
        {"name": url.removeprefix("/"), **body} for verb, url, body in calls if verb == "patch"
    ]
    # Firestore adds the document's name to a composite index, in the order of its last field.
    indexes = [
        {
            **body,
            "name": f"{url.removeprefix('/')}/{number}",
            "fields": [*body["fields"], {**body["fields"][-1], "fieldPath": "__name__"}],
        }
        for number, (verb, url, body) in enumerate(calls)
        if verb == "post"
    ]
    return {"fields": fields, "indexes": indexes}


def test_the_index_file_is_valid_and_complete_in_an_empty_project() -> None:
    """firebase-tools' own validation; every field and every TTL policy is sent."""
    calls = deploy(INDEXES, {})
    sent = {url: body for verb, url, body in calls if verb == "patch"}
    assert len(sent) == len(INDEXES["fieldOverrides"])
    ttl = {row["collectionGroup"] for row in INDEXES["fieldOverrides"] if row.get("ttl")}
    assert {url.split("/")[-3] for url, body in sent.items() if "ttlConfig" in body} == ttl
    assert len(calls) - len(sent) == len(INDEXES["indexes"])


def test_a_file_that_is_wrong_is_refused() -> None:
    """So the test above can fail."""
    wrong = {"indexes": [], "fieldOverrides": [{"collectionGroup": "x", "indexes": []}]}
    with pytest.raises(AssertionError, match="fieldPath"):
        deploy(wrong, {})


def test_deploying_again_changes_nothing() -> None:
    """What is there is recognised."""
    first = deploy(INDEXES, {})
    assert deploy(INDEXES, after(first)) == []


def test_what_the_project_had_stays_unless_somebody_forces() -> None:
    """`--force` deletes what the file does not name: docs/guides/deploy.md warns of it."""
    kept = deploy(INDEXES, THEIRS)
    assert not [url for _verb, url, _body in kept if "/posts/" in url]
    forced = deploy(INDEXES, THEIRS, force=True)
    lost = {url.removeprefix("/") for _verb, url, _body in forced if "/posts/" in url}
    assert lost == {THEIRS["indexes"][0]["name"], THEIRS["fields"][0]["name"]}


# As `firebase firestore:indexes` prints them.
PRINTED: dict[str, Any] = {
    "indexes": [
        {
            "collectionGroup": "posts",
            "queryScope": "COLLECTION",
            "fields": THEIRS["indexes"][0]["fields"],
            "density": "SPARSE_ALL",
        }
    ],
    "fieldOverrides": [
        {"collectionGroup": "posts", "fieldPath": "deleteAt", "ttl": True, "indexes": []}
    ],
}


def test_a_merged_file_keeps_theirs_even_when_forced() -> None:
    """And brings all of ours."""
    calls = deploy(merge(PRINTED, INDEXES), THEIRS, force=True)
    assert not [url for _verb, url, _body in calls if "/posts/" in url]
    assert len(calls) == len(INDEXES["fieldOverrides"]) + len(INDEXES["indexes"])


def test_merging_again_adds_nothing() -> None:
    """What the project has of ours already is not repeated."""
    merged = merge(PRINTED, INDEXES)
    assert merge(merged, INDEXES) == merged


def test_a_contradiction_is_refused_by_name() -> None:
    """Nobody's index is dropped silently."""
    row = {"collectionGroup": "agent_turns", "fieldPath": "prompt"}
    indexed = {**row, "indexes": [{"order": "ASCENDING", "queryScope": "COLLECTION"}]}
    theirs = {"indexes": [], "fieldOverrides": [indexed]}
    with pytest.raises(ProblemError, match=r"agent_turns\.prompt"):
        merge(theirs, INDEXES)


def merged_by_command(path: Path) -> subprocess.CompletedProcess[str]:
    """What the guide tells to run."""
    command = [sys.executable, "-m", "dev.merge_indexes", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_merges_into_the_file(tmp_path: Path) -> None:
    """In place: a shell's `>` would empty a file that is still to be read. Twice adds nothing."""
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(PRINTED))
    done = merged_by_command(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 indexes and 1 fields were there" in done.stdout
    assert json.loads(path.read_text()) == merge(PRINTED, INDEXES)
    assert "added 0 and 0" in merged_by_command(path).stdout
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("no JSON", "is no index file"),
        ("[]", "is no index file"),
        (
            json.dumps({"fieldOverrides": [{"collectionGroup": "agent_turns", "fieldPath": "prompt",
                                            "indexes": [{"order": "ASCENDING"}]}]}),
            "agent_turns.prompt",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_left_alone(tmp_path: Path, content: str, says: str) -> None:
    """And the command says what is wrong, in a line for a person."""
    path = tmp_path / "theirs.json"
    path.write_text(content)
    done = merged_by_command(path)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_text() == content


def test_what_the_project_lists_of_ours_is_not_added_again() -> None:
    """A later version's merge begins from `firebase firestore:indexes`, which has ours by then."""
    listed = [
        {
            **row,
            "density": "SPARSE_ALL",
            "fields": [*row["fields"], {**row["fields"][-1], "fieldPath": "__name__"}],
        }
        for row in INDEXES["indexes"]
    ]
    theirs = {"indexes": listed, "fieldOverrides": []}
    assert merge(theirs, INDEXES)["indexes"] == listed
