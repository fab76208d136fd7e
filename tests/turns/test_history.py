"""What a session keeps (H4): pure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.turns import history
from functions.turns.history import (
    ANSWER_CHARS,
    CUT,
    ENTRY_BYTES,
    SESSION_HISTORY_BYTES,
    Entry,
    Told,
    encode,
    exchange,
    fit,
    hash_of,
    messages_of,
)
from functions.wire.text import utf16_length

SIZES = st.integers(0, SESSION_HISTORY_BYTES * 2)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
)


def entry(position: int, size: int) -> Entry:
    """An entry with so many bytes of messages, at least two."""
    text = "x" * max(0, size - 4)
    return Entry(f"key-{position}", f"turn-{position}", position, json.dumps([text]).encode())


@given(st.lists(SIZES, max_size=12), SIZES)
def test_the_oldest_whole_turns_go_and_no_more_than_must(sizes: list[int], size: int) -> None:
    """What is kept fits; one turn more would not; the new turn is there in any case."""
    entries: list[Entry] = []
    for position, old in enumerate(sizes):
        kept, dropped = fit(entries, entry(position, old))
        entries = [*entries[len(dropped) :], kept]
    new = entry(len(sizes), size)
    kept, dropped = fit(entries, new)
    assert list(dropped) == entries[: len(dropped)]
    left = [*entries[len(dropped) :], kept]
    assert sum(one.size for one in left) <= SESSION_HISTORY_BYTES
    if dropped:
        assert sum(one.size for one in (dropped[-1], *left)) > SESSION_HISTORY_BYTES
    assert kept.dropped == (new.size > SESSION_HISTORY_BYTES)
    assert kept.messages == (b"[]" if kept.dropped else new.messages)


def test_turns_that_leave_nothing_are_bounded_too() -> None:
    """Each counts for more than its messages."""
    entries = [entry(n, 0) for n in range(SESSION_HISTORY_BYTES // ENTRY_BYTES)]
    _, dropped = fit(entries, entry(9999, 0))
    assert dropped


@given(st.lists(JSON, max_size=5))
def test_messages_come_back_as_they_were(messages: list[object]) -> None:
    """And as a list of one's own."""
    entries = [Entry("k", "t", 1, encode(messages))]
    assert messages_of(entries) == messages
    assert messages_of(entries) is not messages_of(entries)


def test_the_longest_prompt_and_answer_are_kept() -> None:
    """In the script that takes the most bytes; a longer answer is cut, and says so."""
    kept, dropped = fit([], Entry("k", "t", 1, exchange("\U0001f600" * 50_000, "語" * 60_000)))
    assert not kept.dropped
    assert not dropped
    answer = json.loads(kept.messages)[1]["content"]
    assert answer == "語" * ANSWER_CHARS + CUT


@given(st.lists(st.tuples(st.text("aé😀", max_size=8), st.booleans()), max_size=20))
def test_what_was_withdrawn_is_not_told(steps: list[tuple[str, bool]]) -> None:
    """Text grows by tokens and is cut by rewinds, as a client's does."""
    told, text, lengths = Told(), "", [0]
    for words, rewinds in steps:
        if rewinds:
            length = lengths[len(words) % len(lengths)]
            told.cut(length)
            text = text.encode("utf-16-le")[: 2 * length].decode("utf-16-le")
            lengths = [one for one in lengths if one <= length]
        else:
            told.add(words)
            text += words
            lengths.append(utf16_length(text))
        assert told.text == text


def test_a_long_text_is_kept_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a part of it is withdrawn later."""
    monkeypatch.setattr(history, "ANSWER_CHARS", 10)
    told = Told()
    for _ in range(10):
        told.add("abcd")
    assert told.text == "abcd" * 3
    told.cut(20)
    assert told.text == "abcd" * 3
    told.cut(6)
    told.add("xyz")
    assert told.text == "abcdabxyz"


def test_another_history_has_another_hash() -> None:
    """Whatever differs: a turn, its text, where one ends and the next begins."""
    one, two = entry(1, 10), entry(2, 10)
    hashes = {hash_of([]), hash_of([one]), hash_of([two]), hash_of([one, two]), hash_of([two, one])}
    assert len(hashes) == 5
