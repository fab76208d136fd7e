"""The facts of this repository that its tooling goes by: folders, names, and `firebase.json`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEV = ROOT / "dev"
VENV = (ROOT / "venv").resolve()
FIREBASE_TOOLS = DEV / "firebase-tools"

LOCAL_PROJECT = "demo-agent-turns"
"""The project of everything local, whichever one `.firebaserc` deploys to: the prefix `demo-` is
firebase-tools' promise, and the stand-in tokens' condition, that no real service is ever called."""

STREAMS = ("start_turn", "resume_turn")
"""The deployed functions that must answer before a local stack counts as ready."""

PAYMENTS_URL = "DEMO_PAYMENTS_URL"
"""Names the demo agent's payment server to the functions, and its port to `make dev`."""

TICKETS = "demo_tickets"
"""The collection of the tickets that the demo agent opens."""

EMULATORS = ("functions", "firestore", "auth", "hosting", "tasks")


class ProblemError(Exception):
    """Something that the person at the keyboard can mend; the message says in plain words how."""


@dataclass(frozen=True)
class Project:
    """What a folder's `firebase.json` says."""

    root: Path
    config: dict[str, Any]

    @property
    def python_version(self) -> str:
        """The Python that the functions' runtime names: for `python311`, "3.11"."""
        return python_version(str(self.config["functions"]["runtime"]))

    def port(self, emulator: str) -> int:
        """Return the port of an emulator; KeyError if the configuration names none."""
        return int(self.config["emulators"][emulator]["port"])

    @property
    def payments_port(self) -> int | None:
        """The port of the payment server, which the local project's `.env` names; None if not."""
        url = self._setting(PAYMENTS_URL, f".env.{LOCAL_PROJECT}") or ""
        named = re.fullmatch(r"http://127\.0\.0\.1:([0-9]+)", url)
        return None if named is None else int(named[1])

    @property
    def region(self) -> str:
        """Where the functions run, on the local stack, too: by `.env`, or the local project's."""
        named = self._setting("REGION", f".env.{LOCAL_PROJECT}") or self._setting("REGION", ".env")
        return named or "us-central1"

    def _setting(self, name: str, file: str) -> str | None:
        """What a file of settings says of one; None if it says nothing."""
        path = self.root / file
        text = path.read_text("utf-8") if path.exists() else ""
        found = re.findall(rf"^{name}=([^#\n]*)", text, re.MULTILINE)
        return found[-1].strip() if found else None


def read(root: Path = ROOT) -> Project:
    """Read a folder's `firebase.json`.

    Raises:
        OSError: there is none.
        ValueError: it is not JSON.
    """
    return Project(root=root, config=json.loads((root / "firebase.json").read_text("utf-8")))


def function_url(function: str, port: int) -> str:
    """Return where the Functions emulator on that port serves a function, without a last slash."""
    return f"http://127.0.0.1:{port}/{LOCAL_PROJECT}/{read().region}/{function}"


def python_version(runtime: str) -> str:
    """Turn a Cloud Functions runtime into a Python version: `python311` gives "3.11".

    Raises:
        ValueError: it is not a Python runtime.
    """
    digits = runtime[len("python") :]
    if not runtime.startswith("python") or not digits.isdigit() or len(digits) < 2:
        raise ValueError(f"{runtime!r} is not a Python runtime of Cloud Functions")
    return f"{digits[0]}.{digits[1:]}"
