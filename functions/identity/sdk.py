"""The Firebase Admin SDK under our bounds: one app for each process, made at the first request.

What the SDK lets through, leaves out or waits for is put right here, against its pinned version:
an App Check token without `exp` or with an empty `sub`, an issuer that is no string, the skew of
clocks, thirty seconds of waiting for keys, and key servers that answer nonsense, which it would
call a bad token.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import firebase_admin
import jwt
from firebase_admin import _http_client, app_check, auth, exceptions
from google.auth.exceptions import GoogleAuthError
from urllib3.util.retry import Retry

from functions import logs
from functions.errors import AppCheckFailed, IdentityUnavailable, NotConfigured, SignInFailed
from functions.identity import tokens
from functions.identity.auth import EMULATOR
from functions.settings import Settings

CALL_SECONDS = 3.0
"""One call to Google may take so long."""
SHARED_SECONDS = 1.0
"""Who waited for somebody else's call shares its failure, instead of waiting in turn."""
KEYS_SECONDS = 6 * 3600
"""How long App Check's keys may be kept (https://firebase.google.com/docs/app-check)."""

_NO_ANSWER = "what verifies tokens did not answer in time"
_NOT_ALLOWED = "this deployment may not verify tokens; the log says what is missing"

_app: firebase_admin.App | None = None
_app_lock = threading.Lock()


def use_up(token: str, project: str) -> str:
    """Verify an App Check token and use it up; the app's id. Raises as `app_check.use_up` says."""
    app = _the_app(project)
    try:
        app._get_service(app_check._APP_CHECK_ATTRIBUTE, _AppCheck)  # noqa: SLF001 - see _AppCheck
        claims = app_check.verify_token(token, app=app, consume=True)
    except (ValueError, jwt.PyJWTError):
        raise AppCheckFailed("the App Check token is not genuine") from None
    except exceptions.InvalidArgumentError:
        raise AppCheckFailed("the App Check token's provider has no single use of tokens") from None
    except exceptions.PermissionDeniedError as error:
        # Google says the same of a token that is over by its clock, and to who may not ask.
        if _over(token):
            raise AppCheckFailed("the App Check token is expired") from None
        raise _unanswered(error) from None
    except (exceptions.FirebaseError, GoogleAuthError) as error:
        raise _unanswered(error) from None
    if claims.get("already_consumed") is not False:
        raise AppCheckFailed("the App Check token was already used")
    return str(claims["sub"])


def uid(token: str, settings: Settings) -> str:
    """Verify an ID token; the user's id. Raises as `auth.uid` says."""
    app = _the_app(settings.project)
    with _first_keys.wait():
        try:
            claims = auth.verify_id_token(
                token,
                app=app,
                check_revoked=settings.check_revoked,
                clock_skew_seconds=tokens.SKEW_SECONDS,
            )
        except auth.CertificateFetchError:
            raise IdentityUnavailable(_NO_ANSWER) from None
        except auth.RevokedIdTokenError:
            raise SignInFailed("the ID token was revoked") from None
        except (auth.UserDisabledError, auth.UserNotFoundError):
            raise SignInFailed("the user of the ID token is disabled or deleted") from None
        except auth.InvalidIdTokenError as error:
            # The keys', and not the token's: its form was read before.
            if isinstance(error.cause, (json.JSONDecodeError, UnicodeDecodeError)):
                raise IdentityUnavailable(_NO_ANSWER) from None
            raise SignInFailed("the ID token is not genuine") from None
        except (exceptions.FirebaseError, GoogleAuthError) as error:
            raise _unanswered(error) from None
        except (TypeError, AttributeError):  # the key server's JSON is no set of keys
            raise IdentityUnavailable(_NO_ANSWER) from None
        except ValueError:
            raise SignInFailed("the ID token is malformed") from None
    known = claims.get("firebase")
    if isinstance(known, dict) and known.get("tenant"):
        # Two tenants may each have a user of the same uid: they would share their turns.
        raise SignInFailed("users of Identity Platform tenants are not served")
    return str(claims["uid"])


def _over(token: str) -> bool:
    """Whether a token that was verified is past its time, though within the skew of clocks."""
    unverified = tokens.read(token)
    return unverified is not None and unverified.claims["exp"] <= time.time()


def _the_app(project: str) -> firebase_admin.App:
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
            raise IdentityUnavailable(_NO_ANSWER) from None
    return _app


def _unanswered(error: Exception) -> IdentityUnavailable | NotConfigured:
    """What an error of Google's is answered as; the log names its kind."""
    refused = (
        exceptions.PermissionDeniedError,
        exceptions.UnauthenticatedError,
        exceptions.NotFoundError,
    )
    if isinstance(error, refused):
        logs.error(
            "Google does not let this deployment verify tokens: enable the Firebase App Check API,"
            " and give its service account the role Firebase App Check Token Verifier",
            cause=type(error).__name__,
        )
        return NotConfigured(_NOT_ALLOWED)
    logs.warning("tokens cannot be verified", cause=type(error).__name__)
    return IdentityUnavailable(_NO_ANSWER)


class _FirstKeys:
    """Lets one thread of a cold process fetch the keys of ID tokens, which the SDK then keeps.

    The others wait for it, and share its failure.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = False
        self._failed_at = float("-inf")

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Hold the place of the one who fetches, until somebody succeeded."""
        if self._known:
            yield
            return
        with self._lock:
            if time.monotonic() < self._failed_at + SHARED_SECONDS:
                raise IdentityUnavailable(_NO_ANSWER)
            try:
                yield
            except IdentityUnavailable:
                self._failed_at = time.monotonic()
                raise
            self._known = True


_first_keys = _FirstKeys()


class _Keys(jwt.PyJWKClient):
    """App Check's public keys. Whatever keeps them away is an outage, and no bad token."""

    _failed_at = float("-inf")
    _one_at_a_time = threading.RLock()

    def get_signing_keys(self, refresh: bool = False) -> list[jwt.PyJWK]:
        """The keys, fetched by one thread for all. Raises IdentityUnavailable."""
        with self._one_at_a_time:
            if time.monotonic() < self._failed_at + SHARED_SECONDS:
                raise IdentityUnavailable(_NO_ANSWER)
            try:
                return super().get_signing_keys(refresh)
            except (jwt.PyJWTError, ValueError, OSError) as error:
                self._failed_at = time.monotonic()
                logs.warning("App Check's keys cannot be fetched", cause=type(error).__name__)
                raise IdentityUnavailable(_NO_ANSWER) from None


class _AppCheck(app_check._AppCheckService):  # type: ignore[misc]  # noqa: SLF001 - no other way
    """The SDK's service, with a bound on each call, and claims judged as docs/PROTOCOL.md says.

    The SDK has no option for either: it waits 30 s for keys, and allows no skew of clocks.
    """

    def __init__(self, app: firebase_admin.App) -> None:
        super().__init__(app)
        self._jwks_client = _Keys(
            self._JWKS_URL,
            lifespan=KEYS_SECONDS,
            headers=self._APP_CHECK_HEADERS,
            timeout=CALL_SECONDS,
        )
        # A call that may have arrived is not sent again: its token would count as used.
        self._http_client = _http_client.JsonHttpClient(
            credential=app.credential.get_credential(),
            timeout=CALL_SECONDS,
            retries=Retry(connect=1, read=0, status=0, redirect=0, other=0, backoff_factor=0),
        )

    def _decode_and_verify(self, token: str, signing_key: Any) -> dict[str, Any]:
        """The verified claims. Raises AppCheckFailed, which says what is wrong with them."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                signing_key,
                algorithms=["RS256"],
                audience=self._scoped_project_id,
                leeway=tokens.SKEW_SECONDS,
                options={"require": ["aud", "exp", "iss", "sub"]},
            )
        except jwt.InvalidSignatureError:
            raise AppCheckFailed("the App Check token is not genuine") from None
        except jwt.InvalidAudienceError:
            raise AppCheckFailed("the App Check token is for another project") from None
        except jwt.ExpiredSignatureError:
            raise AppCheckFailed("the App Check token is expired") from None
        problem = tokens.time_problem(claims, time.time())
        if problem is not None:
            raise AppCheckFailed(f"the App Check token {problem}")
        if not str(claims["iss"]).startswith(self._APP_CHECK_ISSUER):
            raise AppCheckFailed("the App Check token has another issuer")
        if not isinstance(claims["aud"], list) or tokens.name(claims, "sub") is None:
            raise AppCheckFailed("the App Check token lacks a proper `aud` or `sub`")
        return claims
