"""Node.js, the packages of its folders, and the pinned firebase-tools that runs on it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from dev import progress
from dev.project import FIREBASE_TOOLS, ROOT, ProblemError

OLDEST_MAJOR = 20

PACKAGE = FIREBASE_TOOLS / "node_modules" / "firebase-tools"

SDK = ROOT / "tests" / "e2e" / "sdk"
CLIENT = ROOT / "client"
RULES = ROOT / "tests" / "rules"
PAGE = ROOT / "page"

FOLDERS = (
    (FIREBASE_TOOLS, "firebase-tools"),
    (CLIENT, "the client's packages"),
    (PAGE, "the demo page's packages"),
    (SDK, "the Firebase JS SDK, for tests"),
    (RULES, "the Firestore rules' test client"),
)
"""Each has a `package.json` and a lock file of its own, and what it is for. None is at the root:
firebase-tools refuses a project with one there."""


def ensure_all() -> None:
    """Install what every folder's lock file names; quick when it is there.

    Raises:
        ProblemError: Node.js or npm is missing or too old, or an installation failed.
    """
    for folder, what in FOLDERS:
        ensure_packages(folder, what)


def ensure_packages(folder: Path, what: str) -> None:
    """Install what a folder's lock file names; quick when that is there.

    Raises:
        ProblemError: Node.js or npm is missing or too old, or the installation failed.
    """
    stamp = folder / "node_modules" / ".agent-turns-installed"
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return
    locate()
    progress.run(
        f"Installing {what}",
        [npm(), "ci"],
        cwd=folder,
        on_failure=f"npm could not install {what} (its words are above). Check the connection to"
        " the npm registry, then run the same command again.",
    )
    stamp.write_text(wanted, "utf-8")


def npm() -> str:
    """Return the command of npm.

    Raises:
        ProblemError: there is none.
    """
    command = shutil.which("npm")
    if command is None:
        raise ProblemError(
            "npm was not found. It comes with Node.js: install that from https://nodejs.org."
        )
    return command


def locate() -> str:
    """Return the command of a Node.js that firebase-tools runs on.

    Raises:
        ProblemError: there is none, or it is too old.
    """
    node = shutil.which("node")
    if node is None:
        raise ProblemError(
            f"Node.js was not found, and firebase-tools runs on it. Install version {OLDEST_MAJOR}"
            " or newer from https://nodejs.org, then run the same command again."
        )
    words = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = words.strip().lstrip("v")
    if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < OLDEST_MAJOR:
        raise ProblemError(
            f"Node.js {version or 'of an unknown version'} is too old: firebase-tools needs"
            f" {OLDEST_MAJOR} or newer. Install that from https://nodejs.org (or `nvm install"
            f" {OLDEST_MAJOR}`), then run the same command again."
        )
    return node


def firebase() -> list[str]:
    """Return the command line that starts the pinned firebase-tools, to be followed by its own."""
    return [locate(), str(PACKAGE / "lib" / "bin" / "firebase.js")]


def firestore_emulator_jar() -> str | None:
    """Return the file name of the emulator that the pinned firebase-tools downloads.

    None before firebase-tools is installed.
    """
    facts = PACKAGE / "lib" / "emulator" / "downloadableEmulatorInfo.json"
    if not facts.exists():
        return None
    return str(json.loads(facts.read_text("utf-8"))["firestore"]["downloadPathRelativeToCacheDir"])
