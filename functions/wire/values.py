"""JSON values as events and records carry them: whatever reads them back can. Pure."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

from functions.wire.text import mended

MAX_DEPTH = 100
"""Levels of lists and objects inside one another. A parser that recurses, as Python's does, has
room for so many wherever it is called from; what one thread writes, another might not read."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[{\]}]")


def to_json(value: Any, *, levels: int = MAX_DEPTH, ensure_ascii: bool = True) -> str:
    """`value` as JSON text on one line; `whole`, if it is ASCII.

    Raises TypeError or ValueError when JSON cannot carry it, or it is nested over `levels` deep.
    """
    try:
        text = json.dumps(value, ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        raise
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except Exception:  # noqa: BLE001 - of a value's own code: a mapping that reads its items late
        raise ValueError("a value cannot be read") from None
    if depth(text) > levels:
        raise ValueError("nested too deeply")
    return whole(text) if ensure_ascii else text


def whole(text: str) -> str:
    """A JSON text in ASCII whose strings are Unicode: half a surrogate pair, which not every parser
    takes, becomes U+FFFD.
    """
    if "\\ud" not in text:
        return text
    plain = json.dumps(json.loads(text), ensure_ascii=False)
    return json.dumps(json.loads(mended(plain)), separators=(",", ":"))


def depth(text: str) -> int:
    """How many lists and objects are inside one another in a JSON text."""
    brackets = _BRACKET.findall(_STRING.sub("", text))
    return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
