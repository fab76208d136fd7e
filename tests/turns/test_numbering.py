"""Ids and cursors, by table and by property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.turns.numbering import (
    WINDOW,
    continues,
    cursor_possible,
    first_id_of_epoch,
    highest_showable,
    parse_cursor,
)

IDS = st.integers(0, 2**40)


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("", 0),
        ("0", 0),
        ("7", 7),
        ("9007199254740991", 2**53 - 1),
        ("9007199254740992", None),
        ("9007199254740993", None),
        ("07", None),
        ("abc", None),
        ("-1", None),
        ("+1", None),
        ("1_000", None),
        (" 7", None),
        ("7 ", None),
        ("5,9", None),
        ("\u00b2", None),
        ("\u0663", None),
        ("1e3", None),
        ("0x10", None),
        ("9" * 5000, None),
        ("1\n", None),
    ],
)
def test_a_cursor_is_decimal_digits(text: str, cursor: int | None) -> None:
    """Empty means from the start; everything else is refused."""
    assert parse_cursor(text) == cursor


@given(st.text())
def test_parsing_a_cursor_never_raises(text: str) -> None:
    """Whatever a header holds."""
    value = parse_cursor(text)
    assert value is None or value >= 0


@given(IDS, st.integers(1, 10**6), st.integers(0, 10**6))
def test_an_epoch_begins_above_everything_shown(last: int, window: int, ahead: int) -> None:
    """N3: no id that a dead owner may have shown is used again."""
    shown = min(last + ahead, highest_showable(last, window))
    assert first_id_of_epoch(last, window) > shown


@pytest.mark.parametrize(
    ("cursor", "last", "finished", "possible"),
    [
        (0, 0, False, True),
        (12, 12, True, True),
        (13, 12, True, False),
        (480, 12, True, False),
        (480, 12, False, True),
        (12 + WINDOW, 12, False, True),
        (13 + WINDOW, 12, False, False),
        (500, 20_000, True, True),
    ],
)
def test_a_cursor_is_possible_up_to_what_may_have_been_shown(
    cursor: int, last: int, *, finished: bool, possible: bool
) -> None:
    """A finished turn shows nothing beyond its end; ids in a dead epoch's gap are possible."""
    assert cursor_possible(cursor, last, WINDOW, finished=finished) is possible


@given(IDS, IDS)
def test_a_chunk_continues_from_the_chunk_before_it(cursor: int, after: int) -> None:
    """J4: a reader that has all up to `after`, or more, misses nothing."""
    assert continues(cursor, after) == (cursor >= after)
