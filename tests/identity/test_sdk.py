"""What the package needs of the installed Firebase Admin SDK, and finds out before it serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    from firebase_admin import _http_client, app_check

    assert isinstance(app_check._APP_CHECK_ATTRIBUTE, str)
    for part in ("_decode_and_verify", "_JWKS_URL", "_APP_CHECK_HEADERS", "_APP_CHECK_ISSUER"):
        assert hasattr(app_check._AppCheckService, part)
    assert callable(_http_client.JsonHttpClient)
