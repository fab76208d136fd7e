"""A stand-in for App Check on the Emulator Suite, in the manner of the Auth emulator's unsigned
ID tokens: JWTs with `alg: none` and App Check's usual claims, each accepted once.

It exists only where nothing real can be reached: `available` says where that is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from functions import firestore
from functions.errors import AppCheckFailed

ISSUER = "https://firebaseappcheck.googleapis.com/"
MAX_TOKEN_CHARS = 4096
SKEW_SECONDS = 60
"""Clocks of a client and of this machine may differ by so much."""


@dataclass(frozen=True, slots=True)
class LocalToken:
    """A token whose claims hold."""

    app_id: str
    token_id: str
    expires_at: datetime


def available(environ: Mapping[str, str], project: str) -> bool:
    """Whether this is the Emulator Suite and no deployment.

    The Functions emulator, too, sets K_SERVICE; a real Cloud Run names its revision otherwise
    than "1" and its configuration.
    """
    cloud_run = "K_SERVICE" in environ and (
        environ.get("K_REVISION") != "1" or "K_CONFIGURATION" in environ
    )
    emulated = environ.get("FUNCTIONS_EMULATOR") == "true" and not cloud_run
    return emulated and project.startswith("demo-") and "FIRESTORE_EMULATOR_HOST" in environ


def parse(token: str, *, project: str, now: datetime) -> LocalToken:
    """Check a token's form and claims. Raises AppCheckFailed, which says what is wrong."""
    if not token:
        raise AppCheckFailed("X-Firebase-AppCheck is missing")
    parts = token.split(".")
    if len(token) > MAX_TOKEN_CHARS or len(parts) != 3 or parts[2]:
        raise AppCheckFailed("the App Check token is not one of the local stand-in")
    header, claims = _json(parts[0]), _json(parts[1])
    if header.get("alg") != "none":
        raise AppCheckFailed("the App Check token is not one of the local stand-in")
    if claims.get("aud") != [f"projects/{project}"]:
        raise AppCheckFailed("the App Check token is for another project")
    if not str(claims.get("iss", "")).startswith(ISSUER):
        raise AppCheckFailed("the App Check token has another issuer")
    app_id, token_id, expires = _name(claims, "sub"), _name(claims, "jti"), claims.get("exp")
    if isinstance(expires, bool) or not isinstance(expires, int) or not 0 < expires < 2**33:
        raise AppCheckFailed("the App Check token lacks `exp`")
    expires_at = datetime.fromtimestamp(expires, UTC)
    if now > expires_at + timedelta(seconds=SKEW_SECONDS):
        raise AppCheckFailed("the App Check token is expired")
    return LocalToken(app_id, token_id, expires_at)


def consume(token: LocalToken) -> None:
    """Use the token up, for all processes.

    Raises AppCheckFailed when somebody did before, StorageUnavailable.
    """
    name = hashlib.sha256(token.token_id.encode("utf-8", "surrogatepass")).hexdigest()
    document = firestore.client().collection(firestore.APP_CHECK_TOKENS).document(name)
    nonce = secrets.token_hex(8)
    fields = {
        "nonce": nonce,
        firestore.EXPIRE_AT: token.expires_at + timedelta(seconds=SKEW_SECONDS),
    }

    def since(within_seconds: float) -> datetime | None:
        snapshot = firestore.read(
            lambda timeout: document.get(retry=None, timeout=timeout),
            within_seconds=within_seconds,
        )
        stored = snapshot.to_dict() or {}
        return snapshot.update_time if stored.get("nonce") == nonce else None

    used_at = firestore.settle(
        lambda batch: batch.create(document, fields),
        since,
        within_seconds=firestore.READ_SECONDS,
    )
    if used_at is None:
        raise AppCheckFailed("the App Check token was already used")


def _name(claims: Mapping[str, Any], claim: str) -> str:
    """A claim that names something. Raises AppCheckFailed."""
    value = claims.get(claim)
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isascii():
        raise AppCheckFailed(f"the App Check token lacks a proper `{claim}`")
    return value


def _json(part: str) -> Mapping[str, Any]:
    """A JWT's base64url part as a JSON object. Raises AppCheckFailed."""
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise AppCheckFailed("the App Check token is malformed")
    return value
