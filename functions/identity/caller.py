"""The caller of a request, identified."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from functions import logs
from functions.errors import Answered, NotConfigured, SignInRequired
from functions.identity import app_check, auth, local_app_check
from functions.settings import Settings

if TYPE_CHECKING:
    from werkzeug.datastructures import Headers

UNVERIFIED = "unverified"
"""The app of every caller under `APP_CHECK=monitor`: a turn must not change its owner when one
attempt has a good token and the next has none.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """A genuine app, and the user who is signed in with it, if there is one."""

    app_id: str
    uid: str | None = None

    def owner_of(self, turn_id: str) -> str:
        """Who owns a turn the caller names: the user; without one, the app and whoever knows the
        unguessable turn id.
        """
        if self.uid is not None:
            return f"uid:{self.uid}"
        return f"app:{self.app_id}:{turn_id}"

    def owner(self) -> str:
        """The user as an owner, of all their turns and sessions. Raises SignInRequired."""
        return f"uid:{self.require_uid()}"

    def require_uid(self) -> str:
        """The user's id, for what only a user can have. Raises SignInRequired."""
        if self.uid is None:
            raise SignInRequired("this needs a signed-in user: send Authorization: Bearer")
        return self.uid


def identify(headers: Headers, settings: Settings, *, needs_user: bool = False) -> Caller:
    """The caller, whose App Check token is used up by this call. With `needs_user` somebody is
    signed in, whatever the settings say.

    What costs nothing is checked first, and the App Check token last: no refused call uses one up.

    Raises AppCheckFailed, SignInRequired, SignInFailed, IdentityUnavailable, StorageUnavailable,
    NotConfigured.
    """
    local = local_app_check.available(os.environ, settings.project)
    if not settings.project:
        raise NotConfigured("the deployment does not say which project it is")
    token, bearer = headers.get("X-Firebase-AppCheck", ""), headers.get("Authorization", "")
    auth.require_sound(os.environ, bearer, local=local)
    required = needs_user or settings.require_auth
    if settings.enforce_app_check:
        use_up = _app(token, settings, local=local)
        uid = auth.uid(bearer, settings, required=required)
        return Caller(use_up(), uid)
    uid = auth.uid(bearer, settings, required=required)
    try:
        _app(token, settings, local=local)()
    except Answered as failed:
        logs.warning("App Check would refuse", code=failed.code, reason=failed.message)
    return Caller(UNVERIFIED, uid)


def _app(token: str, settings: Settings, *, local: bool) -> Callable[[], str]:
    """What uses a token up and tells the app's id, once its form was found right.

    Raises AppCheckFailed.
    """
    if local:
        parsed = local_app_check.parse(token, project=settings.project, now=datetime.now(UTC))
        return partial(local_app_check.consume, parsed)
    app_check.require_form(token)
    return partial(app_check.use_up, token, settings.project)
