"""JSON values: what every parser reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.wire.values import MAX_DEPTH, depth, to_json

ANY_VALUE = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\,a\u2028') | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nested(levels: int) -> Any:
    """A list in a list, so many times."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def levels_of(value: Any) -> int:
    """The depth of a value, counted the plain way."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(levels_of, value), default=0) if isinstance(value, list) else 0


@given(ANY_VALUE)
def test_brackets_inside_strings_do_not_count(value: Any) -> None:
    """The depth is the value's, whatever its strings and names hold; what is written comes back."""
    assert depth(to_json(value)) == levels_of(value)
    assert json.loads(to_json(value, ensure_ascii=False)) == value


@pytest.mark.parametrize(
    "value",
    [nested(MAX_DEPTH + 1), nested(5000), {"a": nested(MAX_DEPTH)}, float("nan"), 10**5000],
    ids=["a level too deep", "deeper than the stack", "in an object", "nan", "digits"],
)
def test_what_some_parser_could_not_read_is_refused(value: Any) -> None:
    """Always with a ValueError, at the last level and far beyond it."""
    with pytest.raises(ValueError, match=r"deep|JSON compliant|digits"):
        to_json(value)
    assert to_json(nested(MAX_DEPTH))


class Lazy(dict[str, Any]):
    """A row of a database whose connection is gone."""

    def items(self) -> Any:
        """What it holds."""
        raise LookupError("detached")


def test_a_value_that_fails_as_it_is_read_is_refused() -> None:
    """Like any other that cannot be written: the error is not the agent's to catch."""
    with pytest.raises(ValueError, match="cannot be read"):
        to_json([Lazy(a=1)])
