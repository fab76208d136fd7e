"""The SSE codec: one event, one frame, whatever its text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.wire import sse
from functions.wire.events import (
    Done,
    Error,
    Event,
    Rewind,
    Token,
    ToolEnd,
    ToolPending,
    ToolStart,
    is_terminal,
)

EVERY_KIND: list[tuple[Event, str, object]] = [
    (Token("hi"), "token", "hi"),
    (ToolStart(1, "pay", {"a": 1}), "tool_start", {"step": 1, "tool": "pay", "args": {"a": 1}}),
    (
        ToolEnd(1, "pay", "ok", [1]),
        "tool_end",
        {"step": 1, "tool": "pay", "status": "ok", "result": [1]},
    ),
    (
        ToolPending(2, "refund", {}, "2026-01-01T00:00:00Z"),
        "tool_pending",
        {"step": 2, "tool": "refund", "args": {}, "expiresAt": "2026-01-01T00:00:00Z"},
    ),
    (Rewind(7, 9), "rewind", {"to": 7, "length": 9}),
    (Done("stop"), "done", {"reason": "stop"}),
    (Done("length", {"tokens": 3}), "done", {"reason": "length", "usage": {"tokens": 3}}),
    (Error("c", "m", "x"), "error", {"code": "c", "message": "m", "correlationId": "x"}),
]


@pytest.mark.parametrize(("event", "kind", "data"), EVERY_KIND)
def test_every_kind_of_event_has_its_frame(event: Event, kind: str, data: object) -> None:
    """`id`, `event`, `data`, a blank line; and back."""
    frame = sse.encode(42, event)
    written = json.dumps(data, separators=(",", ":"))
    assert frame == f"id: 42\nevent: {kind}\ndata: {written}\n\n".encode()
    (read,) = sse.decode(frame)
    assert (read.id, read.type, read.data) == (42, kind, data)
    assert sse.ends_turn(sse.encode(1, Token("x")) + frame) == is_terminal(event)


@pytest.mark.parametrize(
    "text",
    [
        "a\rid: 999\rdata: z",
        "a\n\nid: 999\nevent: done\ndata: {}\n\n",
        "a\u2028b\u2029c\u0085d\x0be\x1cf",
        ":keep-alive\n\n",
        "\x00\x7f\ufeff",
        "那🌍é",
    ],
)
def test_no_text_can_end_a_line_or_forge_a_frame(text: str) -> None:
    """One frame, whose lines any splitter splits alike, and whose string is identical."""
    frame = sse.encode(3, Token(text))
    assert len(frame.decode().splitlines()) == 4
    assert [(read.id, read.data) for read in sse.decode(frame)] == [(3, text)]


def test_a_tool_name_cannot_forge_a_frame() -> None:
    """The type comes from a closed set; names are data."""
    frame = sse.encode(3, ToolStart(1, 'x\ndata: {"forged":1}\n\n', {}))
    assert [read.type for read in sse.decode(frame)] == ["tool_start"]


HALF = "\ud83d"


@pytest.mark.parametrize(
    "event",
    [
        ToolStart(1, HALF, {HALF: [HALF]}),
        ToolEnd(1, HALF, "ok", {HALF: HALF}),
        ToolPending(2, HALF, {"a": {HALF: HALF}}, "2026-01-01T00:00:00Z"),
        Done("stop", {HALF: 3}),
        Error("c", HALF, "x"),
    ],
)
def test_no_string_holds_half_a_surrogate_pair(event: Event) -> None:
    """Not every language's parser takes one. It is U+FFFD; a path that only looks so is left."""
    (read,) = sse.decode(sse.encode(1, event))
    text = json.dumps(read.data, ensure_ascii=False)
    assert text.encode()
    assert "\ufffd" in text
    (read,) = sse.decode(sse.encode(1, Error(r"C:\udo \ud83d", "\ud83d\ude00", "x")))
    assert (read.data["code"], read.data["message"]) == (r"C:\udo \ud83d", "😀")


@given(st.lists(st.text(), max_size=8), st.integers(0, 9))
def test_after_is_the_suffix_above_the_cursor(texts: list[str], cursor: int) -> None:
    """Whole frames, byte for byte."""
    frames = [sse.encode(number, Token(text)) for number, text in enumerate(texts, start=1)]
    assert sse.after(b"".join(frames), cursor) == b"".join(frames[cursor:])


@given(st.binary(max_size=64))
def test_bytes_that_are_no_frames_are_refused(data: bytes) -> None:
    """The decoder reads back what we wrote and nothing else."""
    if data:
        with pytest.raises(ValueError, match="not a frame"):
            list(sse.decode(data))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, b"x", object()])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    """Never NaN on the wire: `JSON.parse` would throw."""
    with pytest.raises((TypeError, ValueError)):
        sse.encode(1, ToolEnd(1, "t", "ok", value))
