"""App Check by the Admin SDK, under our bounds (docs/adr/0011).

What the SDK lets through, leaves out or waits for is put right here, against its pinned version: a
token without `exp` or with an empty `sub`, an issuer that is no string, the skew of clocks, thirty
seconds of waiting for keys, and a key server's nonsense, which it would call a bad token.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import firebase_admin
import jwt
from firebase_admin import _http_client, app_check, exceptions
from google.auth.exceptions import GoogleAuthError
from urllib3.util.retry import Retry

from functions import logs
from functions.errors import AppCheckFailed, IdentityUnavailable
from functions.identity import tokens
from functions.identity.sdk import CALL_SECONDS, NO_ANSWER, SHARED_SECONDS, the_app, unanswered

KEYS_SECONDS = 6 * 3600
"""How long the keys may be kept (https://firebase.google.com/docs/app-check)."""

_NEEDS = "the Firebase App Check API, and the role Firebase App Check Token Verifier"


def use_up(token: str, project: str) -> str:
    """Verify an App Check token and use it up; the app's id. Raises as `app_check.use_up` says."""
    app = the_app(project)
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
        raise unanswered(error, needs=_NEEDS) from None
    except (exceptions.FirebaseError, GoogleAuthError) as error:
        raise unanswered(error, needs=_NEEDS) from None
    if claims.get("already_consumed") is not False:
        raise AppCheckFailed("the App Check token was already used")
    return str(claims["sub"])


def _over(token: str) -> bool:
    """Whether a token that was verified is past its time, though within the skew of clocks."""
    unverified = tokens.read(token)
    return unverified is not None and unverified.claims["exp"] <= time.time()


class _Keys(jwt.PyJWKClient):
    """App Check's public keys. Whatever keeps them away is an outage, and no bad token."""

    _failed_at = float("-inf")
    _one_at_a_time = threading.RLock()

    def get_signing_key(self, kid: str) -> jwt.PyJWK:
        """The key of that name: at once if it is known, whoever waits for Google meanwhile.

        Raises PyJWKClientError when Google has none of that name, IdentityUnavailable.
        """
        known = self._known()
        key = None if known is None else self.match_kid(known.keys, kid)
        return key or super().get_signing_key(kid)

    def get_signing_keys(self, refresh: bool = False) -> list[jwt.PyJWK]:
        """The keys, fetched by one thread for all. Raises IdentityUnavailable."""
        with self._one_at_a_time:
            asks = refresh or self._known() is None
            if asks and time.monotonic() < self._failed_at + SHARED_SECONDS:
                raise IdentityUnavailable(NO_ANSWER)
            try:
                return super().get_signing_keys(refresh)
            except (jwt.PyJWTError, ValueError, OSError) as error:
                self._failed_at = time.monotonic()
                logs.warning("App Check's keys cannot be fetched", cause=type(error).__name__)
                raise IdentityUnavailable(NO_ANSWER) from None

    def _known(self) -> jwt.PyJWKSet | None:
        return None if self.jwk_set_cache is None else self.jwk_set_cache.get()


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
