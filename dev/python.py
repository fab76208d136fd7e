"""The interpreter that the runtime in `firebase.json` names, and the virtual environment of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dev import progress
from dev.project import DEV, ROOT, VENV, ProblemError

BIN = VENV / "bin"
PYTHON = BIN / "python"

_REQUIREMENTS = (ROOT / "requirements.txt", DEV / "requirements.txt")
_STAMP = VENV / ".agent-turns-installed"
_PROBE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def ensure_venv(version: str) -> None:
    """Make `venv` hold a Python of that version with the pinned packages; quick when it does.

    firebase-tools insists on the name `venv` and on the version of the runtime. A `venv` of
    another version, of another place or broken is made anew.

    Raises:
        ProblemError: no such Python was found, or the installation failed.
    """
    wanted = _fingerprint(version)
    if PYTHON.exists() and _STAMP.exists() and _STAMP.read_text("utf-8") == wanted:
        return
    if not _works(PYTHON, version) or not _at_home():
        interpreter = find(version)
        progress.run(
            f"Making venv with Python {version}",
            [str(interpreter), "-m", "venv", "--clear", str(VENV)],
            cwd=ROOT,
            on_failure=f"The virtual environment could not be made with {interpreter}.",
        )
    files = [part for path in _REQUIREMENTS for part in ("-r", str(path))]
    progress.run(
        "Installing Python packages",
        [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", *files],
        cwd=ROOT,
        on_failure="pip could not install requirements.txt and dev/requirements.txt (its words are"
        " above). Check the connection to the package index, then run the same command again.",
    )
    _STAMP.write_text(wanted, "utf-8")


def find(version: str) -> Path:
    """Return a working interpreter of exactly that version: from PATH, else from pyenv.

    One inside `venv` does not count: it could not make `venv` anew.

    Raises:
        ProblemError: there is none.
    """
    for candidate in _candidates(version):
        if VENV not in candidate.absolute().parents and _works(candidate, version):
            return candidate
    package = f"python{version}"
    raise ProblemError(
        f"Python {version} was not found, and the functions run on exactly that version.\n"
        f"Install it, so that `{package}` is a command: `brew install python@{version}` on macOS,\n"
        f"`apt install {package} {package}-venv` on Debian and Ubuntu, or `pyenv install {version}`"
        " anywhere.\nThen run the same command again."
    )


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    for name in (f"python{version}", "python3", "python"):
        for folder in os.get_exec_path():
            found = shutil.which(name, path=folder)
            if found:
                yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    yield from sorted(pyenv.glob(f"versions/{version}*/bin/python{version}"), reverse=True)


def _works(interpreter: Path, version: str) -> bool:
    """Tell whether it runs, is of that version and can make environments (a shim may do none)."""
    if not interpreter.exists():
        return False
    try:
        probe = subprocess.run(
            [interpreter, "-c", _PROBE],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return probe.returncode == 0 and probe.stdout.strip() == version


def _at_home() -> bool:
    """Tell whether `venv` was made for the folder that it is in: its scripts name that folder."""
    activate = BIN / "activate"
    return activate.exists() and str(VENV) in activate.read_text("utf-8", errors="replace")


def _fingerprint(version: str) -> str:
    digest = hashlib.sha256(f"{version}\n{VENV}\n".encode())
    for path in _REQUIREMENTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()
