"""Text as clients count it: UTF-16 code units, never a broken surrogate."""

from __future__ import annotations

from collections.abc import Iterator

_HIGH = range(0xD800, 0xDC00)
REPLACEMENT = "\ufffd"


def require(words: object) -> None:
    """Raise TypeError for anything but a `str`: bytes, too, have a length and can be cut."""
    if not isinstance(words, str):
        raise TypeError(f"a token is a str, not {type(words).__name__}")


def utf16_length(text: str) -> int:
    """Length in UTF-16 code units: what `String.length` says in JavaScript."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def has_surrogates(text: str) -> bool:
    """Whether `text` holds a code point that no encoding of Unicode can carry."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def pieces(text: str, size: int) -> Iterator[str]:
    """Cut into pieces of at most `size` code points."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def mended(text: str) -> str:
    """`text` with the halves of each surrogate pair joined; one that stands alone is U+FFFD."""
    joiner = SurrogateJoiner()
    return joiner.feed(text) + joiner.flush()


class SurrogateJoiner:
    """Mends text that a model or an SDK cut between the two halves of a surrogate pair.

    A trailing high half waits for the next text; a half that stays alone becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """`text` with every pair joined; may hold back its last code unit."""
        if not self._held and not has_surrogates(text):
            return text
        text = self._held + text
        self._held = ""
        if text and ord(text[-1]) in _HIGH:
            text, self._held = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def flush(self) -> str:
        """What was held back, which no further text can complete."""
        held, self._held = self._held, ""
        return REPLACEMENT if held else ""
