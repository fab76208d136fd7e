"""The caller of a request, identified."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from functions.errors import NotConfigured
from functions.identity import local_app_check
from functions.settings import Settings

if TYPE_CHECKING:
    from werkzeug.datastructures import Headers


@dataclass(frozen=True, slots=True)
class Caller:
    """A genuine app."""

    app_id: str

    def owner_of(self, turn_id: str) -> str:
        """Who owns a turn the caller names: the app and whoever knows the unguessable turn id."""
        return f"app:{self.app_id}:{turn_id}"


def identify(headers: Headers, settings: Settings) -> Caller:
    """The caller, whose App Check token is used up by this call.

    Raises AppCheckFailed, StorageUnavailable, or NotConfigured outside the Emulator Suite.
    """
    if not local_app_check.available(os.environ, settings.project):
        raise NotConfigured("this version serves on the Firebase Emulator Suite only")
    token = local_app_check.parse(
        headers.get("X-Firebase-AppCheck", ""), project=settings.project, now=datetime.now(UTC)
    )
    local_app_check.consume(token)
    return Caller(token.app_id)
