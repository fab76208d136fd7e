"""Firebase Auth: on whose behalf a call is made."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from functions.errors import NotConfigured, SignInFailed, SignInRequired
from functions.identity import tokens
from functions.settings import Settings

EMULATOR = "FIREBASE_AUTH_EMULATOR_HOST"
"""Where it is set, the Admin SDK takes ID tokens without a signature."""


def require_sound(environ: Mapping[str, str], header: str, *, local: bool) -> None:
    """Refuse to serve where anybody could sign in as anybody, and to ask Google about an ID token
    of the Emulator Suite. Raises NotConfigured.
    """
    emulated = bool(environ.get(EMULATOR))
    if emulated and not local:
        raise NotConfigured(
            f"{EMULATOR} is set outside the Emulator Suite of a demo- project:"
            " start that one with --project demo-NAME"
        )
    if local and header and not emulated:
        raise NotConfigured(f"the Auth emulator does not run: {EMULATOR} is not set")


def uid(header: str, settings: Settings, *, required: bool) -> str | None:
    """The user of `Authorization: Bearer …`; None when there is none and none is required.

    Raises SignInRequired, SignInFailed, IdentityUnavailable, NotConfigured.
    """
    if not header:
        if required:
            raise SignInRequired("Authorization: Bearer must carry a Firebase ID token")
        return None
    scheme, _, token = header.partition(" ")
    unverified = tokens.read(token.strip()) if scheme.lower() == "bearer" else None
    if unverified is None:
        raise SignInFailed("Authorization must be Bearer and a Firebase ID token")
    if not os.environ.get(EMULATOR) and not tokens.signed_by_google(unverified):
        # Also lest the SDK stumbles over it: that would pass for an outage, for everybody.
        raise SignInFailed("the ID token is not one of Google's")
    if unverified.claims.get("aud") != settings.project:
        raise SignInFailed("the ID token is of another project")
    problem = tokens.time_problem(unverified.claims, time.time())
    if problem is not None:
        raise SignInFailed(f"the ID token {problem}")
    from functions.identity import sdk_auth

    name = sdk_auth.uid(token.strip(), settings)
    if not tokens.is_unicode(name):
        raise SignInFailed("the ID token names its user by what is no Unicode")
    return name
