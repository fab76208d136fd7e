"""ID tokens by the Admin SDK, under our bounds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from firebase_admin import auth, exceptions
from google.auth.exceptions import GoogleAuthError

from functions.errors import IdentityUnavailable, SignInFailed
from functions.identity import tokens
from functions.identity.sdk import NO_ANSWER, SHARED_SECONDS, the_app, unanswered
from functions.settings import Settings

_NEEDS = "the Identity Toolkit API, and for CHECK_REVOKED the role Firebase Authentication Viewer"


def uid(token: str, settings: Settings) -> str:
    """Verify an ID token; the user's id. Raises as `auth.uid` says."""
    app = the_app(settings.project)
    with _first_keys.wait():
        try:
            claims = auth.verify_id_token(
                token,
                app=app,
                check_revoked=settings.check_revoked,
                clock_skew_seconds=tokens.SKEW_SECONDS,
            )
        except auth.CertificateFetchError:
            raise IdentityUnavailable(NO_ANSWER) from None
        except auth.RevokedIdTokenError:
            raise SignInFailed("the ID token was revoked") from None
        except (auth.UserDisabledError, auth.UserNotFoundError):
            raise SignInFailed("the user of the ID token is disabled or deleted") from None
        except auth.InvalidIdTokenError as error:
            # The keys', and not the token's: its form was read before.
            if isinstance(error.cause, (json.JSONDecodeError, UnicodeDecodeError)):
                raise IdentityUnavailable(NO_ANSWER) from None
            raise SignInFailed("the ID token is not genuine") from None
        except (exceptions.FirebaseError, GoogleAuthError) as error:
            raise unanswered(error, needs=_NEEDS) from None
        except (TypeError, AttributeError):  # the key server's JSON is no set of keys
            raise IdentityUnavailable(NO_ANSWER) from None
        except ValueError:
            raise SignInFailed("the ID token is malformed") from None
    known = claims.get("firebase")
    if isinstance(known, dict) and known.get("tenant"):
        # Two tenants may each have a user of the same uid: they would share their turns.
        raise SignInFailed("users of Identity Platform tenants are not served")
    return str(claims["uid"])


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
                raise IdentityUnavailable(NO_ANSWER)
            try:
                yield
            except IdentityUnavailable:
                self._failed_at = time.monotonic()
                raise
            self._known = True


_first_keys = _FirstKeys()
