"""Every setting, read from the environment once and checked before the first request.

Set them in `.env` or `.env.<project>` (https://firebase.google.com/docs/functions/config-env).
Values that must agree are checked here, so that a wrong pair stops the start, not a turn.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from firebase_functions.params import IntParam

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?")

CLIENT_IDLE_SECONDS = 10.0
"""Clients drop a stream that was silent for so long (docs/PROTOCOL.md, "Clients")."""

LONGEST_TURN_HOURS = 1.0
"""A turn's documents must outlive the longest response the platform allows (3,600 s)."""

REGION = os.environ.get("REGION") or "us-central1"
"""Where the functions run: the region of the project's Firestore database, or the nearest to it."""
if not re.fullmatch(r"[a-z]+-[a-z]+[0-9]+", REGION):
    raise ValueError(f"REGION: {REGION!r} is no region, such as us-central1 or europe-west1")

THREADS = IntParam(
    "THREADS",
    default=40,
    label="Threads of one container",
    description="One thread serves one open stream. It is also the function's concurrency.",
)
"""One number for the server's threads and the deployed concurrency, so they cannot disagree."""

MIN_INSTANCES = IntParam(
    "MIN_INSTANCES",
    default=0,
    label="Containers of start_turn kept warm",
    description="Billed while idle. With 0 the first call after a quiet time pays a cold start.",
)
MAX_INSTANCES = IntParam(
    "MAX_INSTANCES",
    default=100,
    label="Containers of one function at most",
    description="Bounds the bill; beyond it callers get 429 or 503 and come back.",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked settings. Durations are in seconds unless a name says otherwise.

    Raises ValueError, with the name of the variable, when values do not fit together.
    """

    project: str
    threads: int
    allowed_origins: frozenset[str]
    heartbeat_seconds: float
    flush_seconds: float
    lease_seconds: float
    retention_hours: float
    session_hours: float
    response_seconds: float
    max_running_turns: int = 10
    max_turns_per_minute: int = 30
    require_auth: bool = True
    check_revoked: bool = False
    """Whether each ID token is looked up at Firebase Auth: one more call for each request."""
    enforce_app_check: bool = True

    @property
    def renewal_seconds(self) -> float:
        """The lease is renewed so often: twice it may fail before the lease lapses."""
        return self.lease_seconds / 3

    @property
    def look_seconds(self) -> float:
        """A turn that runs is looked at so often, in case that nobody runs it any more."""
        return 3 * self.lease_seconds

    @property
    def stream_cap(self) -> int:
        """Streams served at once; the threads above it keep short calls answered at once."""
        return self.threads - max(2, self.threads // 8)

    def __post_init__(self) -> None:
        """Refuse values that would break a promise."""
        if self.threads < 3:
            raise ValueError("THREADS must be at least 3: one stream and two short calls")
        if not 0.01 <= self.flush_seconds <= 2:
            raise ValueError("FLUSH_SECONDS must be between 0.01 and 2")
        if not 0.05 <= self.heartbeat_seconds <= CLIENT_IDLE_SECONDS / 2:
            raise ValueError(
                "HEARTBEAT_SECONDS must be between 0.05 and 5: "
                "clients drop a stream after 10 s of silence, and one ping may be late"
            )
        if not 1 <= self.lease_seconds <= 60:
            raise ValueError("LEASE_SECONDS must be between 1 and 60")
        if self.flush_seconds > self.renewal_seconds:
            raise ValueError("FLUSH_SECONDS must be at most a third of LEASE_SECONDS")
        if not 2 * LONGEST_TURN_HOURS <= self.retention_hours <= 24 * 366:
            raise ValueError("RETENTION_HOURS must be between 2 (the longest turn, twice) and 8784")
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"ALLOWED_ORIGINS: {origin!r} is no origin; write https://host or "
                    "https://host:port, without a path or a slash at the end"
                )
        if not 30 <= self.response_seconds <= 3600:
            raise ValueError("RESPONSE_SECONDS must be between 30 and 3600")
        self._check_owners()

    def _check_owners(self) -> None:
        """What holds for one owner's turns together."""
        if not self.retention_hours <= self.session_hours <= 24 * 3660:
            raise ValueError("SESSION_HOURS must be between RETENTION_HOURS and 87840")
        if not 1 <= self.max_running_turns <= 1000:
            raise ValueError("MAX_RUNNING_TURNS must be between 1 and 1000")
        if not 1 <= self.max_turns_per_minute <= 1000:
            raise ValueError("MAX_TURNS_PER_MINUTE must be between 1 and 1000")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Parse and check. Raises ValueError naming the variable that is wrong."""

        def number(name: str, default: float) -> float:
            text = environ.get(name, "")
            try:
                return float(text) if text else default
            except ValueError:
                raise ValueError(f"{name} must be a number, not {text!r}") from None

        def whole(name: str, default: int) -> int:
            value = number(name, default)
            if value % 1 != 0:  # nan and inf, too
                raise ValueError(f"{name} must be a whole number, not {value}")
            return int(value)

        def choice(name: str, default: str, other: str) -> bool:
            """Whether the variable says its default."""
            text = environ.get(name, "") or default
            if text not in {default, other}:
                raise ValueError(f"{name} must be {default} or {other}, not {text!r}")
            return text == default

        return cls(
            project=_project(environ),
            threads=_threads(environ),
            allowed_origins=frozenset(environ.get("ALLOWED_ORIGINS", "").replace(",", " ").split()),
            heartbeat_seconds=number("HEARTBEAT_SECONDS", 4),
            flush_seconds=number("FLUSH_SECONDS", 0.33),
            lease_seconds=number("LEASE_SECONDS", 9),
            retention_hours=number("RETENTION_HOURS", 24),
            session_hours=number("SESSION_HOURS", 24 * 30),
            response_seconds=number("RESPONSE_SECONDS", 3600),
            max_running_turns=whole("MAX_RUNNING_TURNS", 10),
            max_turns_per_minute=whole("MAX_TURNS_PER_MINUTE", 30),
            require_auth=choice("REQUIRE_AUTH", "true", "false"),
            check_revoked=not choice("CHECK_REVOKED", "false", "true"),
            enforce_app_check=choice("APP_CHECK", "enforce", "monitor"),
        )


@cache
def settings() -> Settings:
    """This process's settings. `main` calls it on import: a bad value stops the start."""
    return Settings.from_environ(os.environ)


def _project(environ: Mapping[str, str]) -> str:
    """The project this container runs in, as Firebase and Google Cloud say it."""
    for name in ("GCLOUD_PROJECT", "GOOGLE_CLOUD_PROJECT"):
        if environ.get(name):
            return environ[name]
    try:
        project = json.loads(environ.get("FIREBASE_CONFIG", "")).get("projectId")
    except (ValueError, AttributeError):  # a file's name, or nothing that Firebase writes
        return ""
    return project if isinstance(project, str) else ""


def _threads(environ: Mapping[str, str]) -> int:
    """How many threads functions-framework starts: four per core when nobody sets THREADS."""
    text = environ.get("THREADS", "")
    if not text:
        return (os.cpu_count() or 1) * 4
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise ValueError(f"THREADS must be a whole number, not {text!r}")
    return int(text)
