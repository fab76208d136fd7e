"""Every query has its index, and every index its query: code, docs/queries.md, index file."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"\| `([\w/]+\.py)` \| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|")
FIELD = re.compile(r"`(\w+)` (ASCENDING|DESCENDING)")
BUILDS_A_QUERY = {"FieldFilter", "order_by", "collection_group", "where"}


def rows() -> list[tuple[str, str, list[str], str]]:
    """File, function, collections and index of each listed query."""
    found = ROW.findall((ROOT / "docs" / "queries.md").read_text())
    return [
        (path, function, re.findall(r"`(\w+)`", collections), index)
        for path, function, collections, _asks, index in found
    ]


def queries_in(path: Path) -> Iterator[str]:
    """The functions of a file that build a query."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef):
            continue
        called = {
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
        }
        if called & BUILDS_A_QUERY:
            yield node.name


def declared() -> dict[str, Any]:
    """The index file."""
    indexes: dict[str, Any] = json.loads((ROOT / "firestore.indexes.json").read_text())
    return indexes


def test_every_query_of_the_code_is_listed_and_nothing_else() -> None:
    """By file and function."""
    files = [*(ROOT / "functions").rglob("*.py"), *(ROOT / "operate").rglob("*.py")]
    built = {
        (path.relative_to(ROOT).as_posix(), name) for path in files for name in queries_in(path)
    }
    assert {(path, function) for path, function, _collections, _index in rows()} == built


def test_single_field_indexes_are_those_that_a_query_needs() -> None:
    """Every other field is exempt: its index would cost, and serve nobody."""
    needed: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for _path, _function, collections, index in rows():
        fields = FIELD.findall(index)
        if len(fields) == 1:
            (name, order), scope = fields[0], index.split()[-1]
            needed.setdefault((collections[0], name), set()).add((order, scope))
    on = {
        (row["collectionGroup"], row["fieldPath"]): {
            (index["order"], index["queryScope"]) for index in row["indexes"]
        }
        for row in declared()["fieldOverrides"]
        if row["indexes"]
    }
    assert on == needed


def test_composite_indexes_are_those_that_a_query_needs() -> None:
    """None that nobody asks for; each costs every write of its collection."""
    needed = {
        (collections[0], index.split()[-1], tuple(FIELD.findall(index)))
        for _path, _function, collections, index in rows()
        if len(FIELD.findall(index)) > 1
    }
    on = {
        (
            row["collectionGroup"],
            row["queryScope"],
            tuple((field["fieldPath"], field["order"]) for field in row["fields"]),
        )
        for row in declared()["indexes"]
    }
    assert on == needed
