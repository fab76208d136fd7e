"""App Check in production: only the genuine app, with each token once."""

from __future__ import annotations

import inspect

from functions.errors import AppCheckFailed
from functions.identity import tokens


def require_sdk() -> None:
    """Raise RuntimeError when the installed firebase-admin cannot use a token up."""
    from firebase_admin import app_check

    if "consume" not in inspect.signature(app_check.verify_token).parameters:
        raise RuntimeError(
            "the installed firebase-admin cannot use App Check tokens up: "
            "install the version that requirements.txt names"
        )


def require_form(token: str) -> None:
    """Refuse what cannot be a token of App Check, without a call. Raises AppCheckFailed."""
    if not token:
        raise AppCheckFailed("X-Firebase-AppCheck is missing")
    unverified = tokens.read(token)
    if unverified is None or not tokens.signed_by_google(unverified):
        raise AppCheckFailed("X-Firebase-AppCheck is not a token of App Check")


def use_up(token: str, project: str) -> str:
    """Verify a token and use it up; the app's id.

    Raises AppCheckFailed; IdentityUnavailable when Google does not answer in time; NotConfigured
    when Google does not let this deployment use tokens up.
    """
    from functions.identity import sdk_app_check

    return sdk_app_check.use_up(token, project)
