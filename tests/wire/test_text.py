"""Text in UTF-16 units, and surrogates that a model cut apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.wire.text import SurrogateJoiner, has_surrogates, pieces, utf16_length

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


def joined(parts: list[str]) -> str:
    """All that a joiner gives for these parts."""
    joiner = SurrogateJoiner()
    return "".join([joiner.feed(part) for part in parts]) + joiner.flush()


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["\ud83d", "\ude00"], "😀"),
        (["a\ud83d", "\ude00b"], "a😀b"),
        (["\ud83d\ude00"], "😀"),
        (["\ud83d"], "\ufffd"),
        (["\ud83d", "x"], "\ufffdx"),
        (["\ud83d", "", "\ude00"], "😀"),
        (["\ud83d", "\ud83d", "\ude00"], "\ufffd😀"),
        (["plain", " text"], "plain text"),
    ],
)
def test_halves_are_joined_or_replaced(parts: list[str], text: str) -> None:
    """The emoji, or U+FFFD for a half that stays alone."""
    assert joined(parts) == text


@given(st.lists(ANY_TEXT))
def test_no_surrogate_comes_out(parts: list[str]) -> None:
    """And what comes out does not depend on where the text was cut."""
    out = joined(parts)
    assert not has_surrogates(out)
    assert out == joined(["".join(parts)])


@given(st.text())
def test_length_is_what_javascript_says(text: str) -> None:
    """Code units, not code points: `rewind.length` cuts a JavaScript string."""
    assert utf16_length(text) == len(text.encode("utf-16-le")) // 2
    assert utf16_length(text) == sum(2 if ord(char) > 0xFFFF else 1 for char in text)


@given(st.text(), st.integers(1, 5))
def test_pieces_lose_nothing(text: str, size: int) -> None:
    """Cut between code points, so no pair is ever split."""
    cut = list(pieces(text, size))
    assert "".join(cut) == text
    assert all(0 < len(piece) <= size for piece in cut)
