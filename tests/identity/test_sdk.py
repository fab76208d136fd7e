"""What the package needs of the installed Firebase Admin SDK, and finds out before it serves."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from firebase_admin import _http_client, app_check

from functions.errors import IdentityUnavailable
from functions.identity.sdk_app_check import _Keys
from tests.support.google import KID, Google

ROOT = Path(__file__).parents[2]

OLD_SDK = """
from firebase_admin import app_check
app_check.verify_token = lambda token, app=None: {}  # as before version 7.6
import main
"""


def test_an_sdk_that_cannot_use_tokens_up_stops_the_start() -> None:
    """Importing `main` fails and says what to install: no container serves replayed tokens."""
    command = [sys.executable, "-c", OLD_SDK]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "requirements.txt" in ended.stderr


def test_the_parts_of_the_sdk_that_ours_stand_on_are_there() -> None:
    """They are not public: an upgrade of firebase-admin that moves them fails here first."""
    assert isinstance(app_check._APP_CHECK_ATTRIBUTE, str)
    for part in ("_decode_and_verify", "_JWKS_URL", "_APP_CHECK_HEADERS", "_APP_CHECK_ISSUER"):
        assert hasattr(app_check._AppCheckService, part)
    assert callable(_http_client.JsonHttpClient)


def test_a_forged_kid_keeps_nobody_with_a_known_one_waiting() -> None:
    """It makes us ask Google for newer keys, which may hang; the known keys serve on."""
    with Google() as google:
        keys = _Keys(f"{google.url}/jwks", timeout=5, cooldown_duration=0)
        known = keys.get_signing_key(KID)
        google.break_("keys", "hang")

        def forge() -> None:
            with suppress(IdentityUnavailable):
                keys.get_signing_key("forged")

        forger = threading.Thread(target=forge)
        forger.start()
        while google.asked["keys"] < 2:
            assert forger.is_alive()
        assert keys.get_signing_key(KID) is known
        assert forger.is_alive()
        forger.join()
        with pytest.raises(IdentityUnavailable):
            keys.get_signing_key("forged")
        assert google.asked["keys"] == 2
        assert keys.get_signing_key(KID) is known
