"""The Firebase Admin SDK: one app for each process, made at the first request, and what its errors
are answered as. `sdk_app_check` and `sdk_auth` verify with it.
"""

from __future__ import annotations

import os
import threading

import firebase_admin
from firebase_admin import exceptions
from google.auth.exceptions import GoogleAuthError

from functions import logs
from functions.errors import IdentityUnavailable, NotConfigured
from functions.identity.auth import EMULATOR

CALL_SECONDS = 3.0
"""One call to Google may take so long."""
SHARED_SECONDS = 1.0
"""Who waited for somebody else's call shares its failure, instead of waiting in turn."""

NO_ANSWER = "what verifies tokens did not answer in time"
_NOT_ALLOWED = "this deployment may not verify tokens; the log says what is missing"

_app: firebase_admin.App | None = None
_app_lock = threading.Lock()


def the_app(project: str) -> firebase_admin.App:
    """This process's app, under a name of our own: an agent's code may have the default one.

    Raises IdentityUnavailable when it has no credentials; the Auth emulator needs none.
    """
    global _app  # noqa: PLW0603 - one per process is the point
    with _app_lock:
        if _app is None:
            options = {"projectId": project, "httpTimeout": CALL_SECONDS}
            _app = firebase_admin.initialize_app(options=options, name="agent-turns")
    if not os.environ.get(EMULATOR):
        try:
            _app.credential.get_credential()
        except (GoogleAuthError, ValueError, OSError) as error:
            logs.error("this deployment has no credentials", cause=type(error).__name__)
            raise IdentityUnavailable(NO_ANSWER) from None
    return _app


def unanswered(error: Exception, *, needs: str) -> IdentityUnavailable | NotConfigured:
    """What an error of Google's is answered as. The log names its kind; where Google refuses this
    deployment, it says what that `needs`.
    """
    refused = (
        exceptions.PermissionDeniedError,
        exceptions.UnauthenticatedError,
        exceptions.NotFoundError,
    )
    cause = type(error).__name__
    if isinstance(error, refused):
        logs.error("Google does not let this deployment verify tokens", needs=needs, cause=cause)
        return NotConfigured(_NOT_ALLOWED)
    logs.warning("tokens cannot be verified", cause=cause)
    return IdentityUnavailable(NO_ANSWER)
