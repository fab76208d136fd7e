"""Put this package's indexes and TTL policies behind those of a project that has its own.

    python3 -m dev.merge_indexes ../firestore.indexes.json

The file is written anew: theirs come first and stay as they are, ours follow. Refused, and left
alone, when both say something else of the same field.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dev import command
from dev.project import ROOT, ProblemError

Spec = dict[str, Any]


def merge(theirs: Spec, ours: Spec) -> Spec:
    """Return both, without repeating what they share.

    Raises:
        ProblemError: they contradict each other; the message names each field.
    """
    have = {_field(row): row for row in theirs.get("fieldOverrides", [])}
    composites = [_composite(row) for row in theirs.get("indexes", [])]
    conflicts = [
        ".".join(_field(row))
        for row in ours["fieldOverrides"]
        if _field(row) in have and _meaning(have[_field(row)]) != _meaning(row)
    ]
    if conflicts:
        raise ProblemError(
            "These fields have other indexes or another TTL policy in the project. Decide on each "
            "by hand:\n  " + "\n  ".join(conflicts)
        )
    return {
        "indexes": [
            *theirs.get("indexes", []),
            *(row for row in ours["indexes"] if _composite(row) not in composites),
        ],
        "fieldOverrides": [
            *theirs.get("fieldOverrides", []),
            *(row for row in ours["fieldOverrides"] if _field(row) not in have),
        ],
    }


def main(words: list[str]) -> int:
    """Merge ours into the file that is named, and say how many rows that added."""
    if len(words) != 1 or words[0].startswith("-"):
        raise ProblemError(f"{__doc__}")
    path = Path(words[0])
    try:
        theirs = json.loads(path.read_text("utf-8"))
        known = theirs.get("indexes", []), theirs.get("fieldOverrides", [])
    except (OSError, ValueError, AttributeError) as error:
        raise ProblemError(f"{path} is no index file: {error}") from error
    merged = merge(theirs, json.loads((ROOT / "firestore.indexes.json").read_text("utf-8")))
    written = path.with_name(f"{path.name}.new")
    written.write_text(f"{json.dumps(merged, indent=2)}\n", "utf-8")
    written.replace(path)
    indexes, fields = (len(merged[name]) for name in ("indexes", "fieldOverrides"))
    print(
        f"{path}: {len(known[0])} indexes and {len(known[1])} fields were there; "
        f"added {indexes - len(known[0])} and {fields - len(known[1])}"
    )
    return 0


def _field(row: Spec) -> tuple[str, str]:
    return row["collectionGroup"], row["fieldPath"]


def _composite(row: Spec) -> Any:
    """What a composite index says. Firestore lists the document's name as its last field, too."""
    fields = [(one["fieldPath"], one.get("order"), one.get("arrayConfig")) for one in row["fields"]]
    named = [one for one in fields if one[0] != "__name__"]
    return row["collectionGroup"], row.get("queryScope", "COLLECTION"), named


def _meaning(row: Spec) -> Any:
    """What a row says, whichever defaults it spells out."""
    indexes = {
        (index.get("order"), index.get("arrayConfig"), index.get("queryScope", "COLLECTION"))
        for index in row["indexes"]
    }
    return bool(row.get("ttl")), indexes


if __name__ == "__main__":
    sys.exit(command.status(lambda: main(sys.argv[1:])))
