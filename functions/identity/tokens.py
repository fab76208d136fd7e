"""The form of a JWT, read without trusting it: cheap, before any key is fetched. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 4096
SKEW_SECONDS = 60
"""The clocks of who made a token and of this machine may differ by so much."""

_FORM = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")


@dataclass(frozen=True, slots=True)
class Unverified:
    """What a token says of itself."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bool


def read(token: str) -> Unverified | None:
    """The token's two JSON objects; None when it does not have the form of a JWT."""
    match = _FORM.fullmatch(token) if len(token) <= MAX_CHARS else None
    if match is None:
        return None
    header, claims = _object(match[1]), _object(match[2])
    if header is None or claims is None:
        return None
    return Unverified(header, claims, signed=bool(match[3]))


def signed_by_google(token: Unverified) -> bool:
    """Whether its header is one of a token that Google signs: RS256, under a named key."""
    kid = token.header.get("kid")
    return (
        token.signed and token.header.get("alg") == "RS256" and isinstance(kid, str) and kid != ""
    )


def time_problem(claims: Mapping[str, Any], now: float) -> str | None:
    """What is wrong with `exp` and `iat` at `now` (seconds since 1970), in words; None if nothing.

    `exp` must be there. Either may be off by SKEW_SECONDS.
    """
    expires, issued = _seconds(claims, "exp"), _seconds(claims, "iat")
    if expires is None:
        return "lacks `exp`"
    if now > expires + SKEW_SECONDS:
        return "is expired"
    if issued is None and "iat" in claims:
        return "has no proper `iat`"
    if issued is not None and issued > now + SKEW_SECONDS:
        return "is not valid yet"
    return None


def name(claims: Mapping[str, Any], claim: str) -> str | None:
    """A claim that names something: 1 to 256 ASCII characters; None if it is not one."""
    value = claims.get(claim)
    proper = isinstance(value, str) and 0 < len(value) <= 256 and value.isascii()
    return value if proper else None


def is_unicode(text: str) -> bool:
    """Whether a string from JSON can be stored: it has no lone surrogate."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _seconds(claims: Mapping[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**33:
        return None
    return value


def _object(part: str) -> Mapping[str, Any] | None:
    """A JWT's base64url part as a JSON object; None if it is not one."""
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):  # binascii's error is a ValueError, too
        return None
    return value if isinstance(value, dict) else None
