"""The fold: what every client ends up with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.wire import sse
from functions.wire.events import Done, Event, Rewind, Token
from functions.wire.fold import Fold, fold


def frames(*events: tuple[int, Event]) -> list[sse.Frame]:
    """These events, as a client decodes them."""
    return [next(sse.decode(sse.encode(number, event))) for number, event in events]


def test_a_rewind_cuts_by_utf16_units() -> None:
    """An emoji counts two."""
    state = fold(frames((1, Token("a😀")), (2, Token("bc")), (9, Rewind(1, 3)), (10, Token("!"))))
    assert (state.text, state.cursor, state.rewinds) == ("a😀!", 10, 1)


def test_ids_not_above_the_cursor_are_ignored() -> None:
    """A repeat changes nothing, a late one neither."""
    once = frames((1, Token("a")), (2, Token("b")))
    assert fold([*once, *once]).text == "ab"


def test_the_terminal_event_is_known() -> None:
    """Without it, a clean end is a drop."""
    assert fold(frames((1, Token("a")))).ended is None
    assert fold(frames((1, Token("a")), (2, Done("stop")))).ended is not None


@given(st.lists(st.text(max_size=4), max_size=10), st.data())
def test_a_saved_text_and_cursor_are_enough(texts: list[str], data: st.DataObject) -> None:
    """Folding in two halves, over a save, is folding once."""
    events = frames(*((number, Token(text)) for number, text in enumerate(texts, start=1)))
    cut = data.draw(st.integers(0, len(events)))
    first = fold(events[:cut])
    saved = Fold(text=first.text, cursor=first.cursor)
    assert fold(events, saved).text == fold(events).text
