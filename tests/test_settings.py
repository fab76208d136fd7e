"""Settings: read from the environment, checked before the first request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from functions.settings import Settings

ROOT = Path(__file__).parents[1]


def test_defaults_fit_together() -> None:
    """Nothing needs to be set."""
    settings = Settings.from_environ({"THREADS": "40"})
    assert (settings.heartbeat_seconds, settings.lease_seconds) == (4, 9)
    assert settings.renewal_seconds == 3
    assert settings.stream_cap == 35


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("THREADS", "2"),
        ("THREADS", "many"),
        ("HEARTBEAT_SECONDS", "6"),
        ("HEARTBEAT_SECONDS", "0"),
        ("HEARTBEAT_SECONDS", "nan"),
        ("FLUSH_SECONDS", "5"),
        ("LEASE_SECONDS", "0.2"),
        ("LEASE_SECONDS", "inf"),
        ("RETENTION_HOURS", "1"),
        ("RETENTION_HOURS", "nan"),
        ("SESSION_HOURS", "23"),
        ("SESSION_HOURS", "nan"),
        ("MAX_RUNNING_TURNS", "0"),
        ("MAX_RUNNING_TURNS", "2.5"),
        ("MAX_RUNNING_TURNS", "inf"),
        ("MAX_TURNS_PER_MINUTE", "1001"),
        ("MAX_TURNS_PER_MINUTE", "nan"),
        ("RETENTION_HOURS", "1e9"),
        ("THREADS", "inf"),
        ("THREADS", "8.7"),
        ("ALLOWED_ORIGINS", "https://a.example/"),
        ("ALLOWED_ORIGINS", "*"),
        ("RESPONSE_SECONDS", "7200"),
        ("RESPONSE_SECONDS", "x"),
        ("REQUIRE_AUTH", "no"),
        ("REQUIRE_AUTH", "True"),
        ("CHECK_REVOKED", "1"),
        ("APP_CHECK", "off"),
    ],
)
def test_a_value_that_breaks_a_promise_is_refused_by_name(variable: str, value: str) -> None:
    """The message names the variable."""
    with pytest.raises(ValueError, match=variable):
        Settings.from_environ({variable: value})


def test_a_flush_longer_than_a_renewal_is_refused() -> None:
    """Both are allowed alone."""
    with pytest.raises(ValueError, match="FLUSH_SECONDS"):
        Settings.from_environ({"FLUSH_SECONDS": "1", "LEASE_SECONDS": "2"})


def test_the_strict_way_is_the_default() -> None:
    """App Check refuses, sign-in is required; what costs a call for each request is not asked."""
    strict = Settings.from_environ({})
    assert (strict.enforce_app_check, strict.require_auth, strict.check_revoked) == (
        True,
        True,
        False,
    )
    loose = {"APP_CHECK": "monitor", "REQUIRE_AUTH": "false", "CHECK_REVOKED": "true"}
    eased = Settings.from_environ(loose)
    assert (eased.enforce_app_check, eased.require_auth, eased.check_revoked) == (
        False,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("environ", "project"),
    [
        ({"GCLOUD_PROJECT": "a"}, "a"),
        ({"GOOGLE_CLOUD_PROJECT": "b"}, "b"),
        ({"FIREBASE_CONFIG": '{"projectId": "c"}'}, "c"),
        ({"FIREBASE_CONFIG": "/path/to/file"}, ""),
        ({"FIREBASE_CONFIG": "{"}, ""),
        ({"FIREBASE_CONFIG": '{"projectId": null}'}, ""),
        ({}, ""),
    ],
)
def test_the_project_is_found_as_the_platform_says_it(
    environ: dict[str, str], project: str
) -> None:
    """Firebase and Google Cloud name it differently."""
    assert Settings.from_environ(environ).project == project


def test_origins_are_split_by_commas_and_spaces() -> None:
    """And none is allowed by default."""
    settings = Settings.from_environ({"ALLOWED_ORIGINS": "https://a.example, https://b.example"})
    assert settings.allowed_origins == {"https://a.example", "https://b.example"}
    assert Settings.from_environ({}).allowed_origins == frozenset()


def test_a_bad_setting_stops_the_start() -> None:
    """Importing `main` fails; a container with it never serves."""
    environ = {**os.environ, "HEARTBEAT_SECONDS": "60"}
    command = [sys.executable, "-c", "import main"]
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=False)
    assert ended.returncode != 0
    assert b"HEARTBEAT_SECONDS" in ended.stderr


def test_threads_of_the_server_and_deployed_concurrency_are_one_number() -> None:
    """The same parameter, so they cannot disagree."""
    probe = (
        "import main; e = main.start_turn.__firebase_endpoint__; "
        "print(e.concurrency, main.resume_turn.__firebase_endpoint__.concurrency)"
    )
    command = [sys.executable, "-c", probe]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    assert shown.split("\n")[0] == "{{ params.THREADS }} {{ params.THREADS }}"
    assert "THREADS=" in (ROOT / ".env").read_text()
