"""A stand-in for App Check on the Emulator Suite, in the manner of the Auth emulator's unsigned
ID tokens: JWTs with `alg: none` and App Check's usual claims, each accepted once.

It exists only where nothing real can be reached: `available` says where that is.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from functions import firestore
from functions.errors import AppCheckFailed
from functions.identity import tokens

ISSUER = "https://firebaseappcheck.googleapis.com/"


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
    unverified = tokens.read(token)
    if unverified is None or unverified.signed or unverified.header.get("alg") != "none":
        raise AppCheckFailed("the App Check token is not one of the local stand-in")
    claims = unverified.claims
    if claims.get("aud") != [f"projects/{project}"]:
        raise AppCheckFailed("the App Check token is for another project")
    if not str(claims.get("iss", "")).startswith(ISSUER):
        raise AppCheckFailed("the App Check token has another issuer")
    problem = tokens.time_problem(claims, now.timestamp())
    if problem is not None:
        raise AppCheckFailed(f"the App Check token {problem}")
    app_id, token_id = tokens.name(claims, "sub"), tokens.name(claims, "jti")
    if app_id is None or token_id is None:
        raise AppCheckFailed("the App Check token lacks a proper `sub` or `jti`")
    return LocalToken(app_id, token_id, datetime.fromtimestamp(claims["exp"], UTC))


def consume(token: LocalToken) -> str:
    """Use the token up, for all processes; the app's id.

    Raises AppCheckFailed when somebody did before, StorageUnavailable.
    """
    name = hashlib.sha256(token.token_id.encode()).hexdigest()
    document = firestore.client().collection(firestore.APP_CHECK_TOKENS).document(name)
    nonce = secrets.token_hex(8)
    fields = {
        "nonce": nonce,
        firestore.EXPIRE_AT: token.expires_at + timedelta(seconds=tokens.SKEW_SECONDS),
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
    return token.app_id
