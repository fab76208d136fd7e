"""Put this package's indexes and TTL policies behind those of a project that has its own.

    firebase firestore:indexes --project PROJECT > theirs.json
    python3 -m dev.merge_indexes theirs.json > merged.json

Theirs come first and stay as they are. Refused when both say something else of the same field.
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
            *(row for row in ours["indexes"] if row not in theirs.get("indexes", [])),
        ],
        "fieldOverrides": [
            *theirs.get("fieldOverrides", []),
            *(row for row in ours["fieldOverrides"] if _field(row) not in have),
        ],
    }


def main(words: list[str]) -> int:
    """Print the merged file."""
    if len(words) != 1:
        raise ProblemError(f"{__doc__}")
    try:
        theirs = json.loads(Path(words[0]).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ProblemError(f"{words[0]} is no index file: {error}") from error
    ours = json.loads((ROOT / "firestore.indexes.json").read_text("utf-8"))
    print(json.dumps(merge(theirs, ours), indent=2))
    return 0


def _field(row: Spec) -> tuple[str, str]:
    return row["collectionGroup"], row["fieldPath"]


def _meaning(row: Spec) -> Any:
    """What a row says, whichever defaults it spells out."""
    indexes = {
        (index.get("order"), index.get("arrayConfig"), index.get("queryScope", "COLLECTION"))
        for index in row["indexes"]
    }
    return bool(row.get("ttl")), indexes


if __name__ == "__main__":
    sys.exit(command.status(lambda: main(sys.argv[1:])))
