"""Where the jar of the official Firestore emulator lies, in a form that `java -jar` runs.

`python3 -m dev.firestore_emulator` prints it, or says that there is none and ends with 1.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dev import node, progress
from dev.project import FIREBASE_TOOLS, ProblemError

OVERRIDE = "FIRESTORE_EMULATOR_BINARY_PATH"
"""The variable by which firebase-tools, too, is told to use a jar instead of downloading one."""

MAIN_CLASS = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"

MISSING = f"""\
The Firestore emulator was not found on this machine and could not be downloaded.
Make storage.googleapis.com reachable, or do one of these, and run the command again:
  - install the Google Cloud CLI, then: gcloud components install cloud-firestore-emulator
  - set {OVERRIDE} to a cloud-firestore-emulator jar that you have"""

_MANIFEST = "META-INF/MANIFEST.MF"
_COMPONENT = Path("platform", "cloud-firestore-emulator", "cloud-firestore-emulator.jar")
_SDK_FOLDERS = (
    "~/google-cloud-sdk",
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/usr/local/share/google-cloud-sdk",
    "/opt/homebrew/share/google-cloud-sdk",
    "/opt/google-cloud-sdk",
    "/snap/google-cloud-cli/current",
)


def locate() -> Path | None:
    """Return the emulator as a jar that `java -jar` runs, or None if this machine has none.

    Looked for in this order: what FIRESTORE_EMULATOR_BINARY_PATH names, firebase-tools' own
    cache (the version that the pinned one wants), the gcloud CLI's component. A jar that names no
    main class comes back as a shim for it.

    Raises:
        ProblemError: FIRESTORE_EMULATOR_BINARY_PATH names a file that is not a jar.
    """
    override = os.environ.get(OVERRIDE)
    if override:
        jar = Path(override).expanduser()
        if not zipfile.is_zipfile(jar):
            raise ProblemError(
                f"{OVERRIDE} is {override}, and that is not a jar file: mend or unset it."
            )
        return jar.absolute() if _names_main_class(jar) else shim(jar)
    cached = _cached()
    if cached is not None and cached.exists():
        return cached
    for sdk in _gcloud_sdks():
        if (sdk / _COMPONENT).exists():
            return shim(sdk / _COMPONENT)
    return None


def ensure() -> None:
    """Have firebase-tools download the emulator into its cache if this machine has none.

    Raises:
        ProblemError: the download failed; the message says what else would do.
    """
    if locate() is None:
        progress.run(
            "Downloading the Firestore emulator",
            [*node.firebase(), "setup:emulators:firestore"],
            cwd=FIREBASE_TOOLS,
            on_failure=MISSING,
        )


def shim(jar: Path) -> Path:
    """Return a jar, in the user's cache, that holds just a manifest and starts the given one.

    The gcloud CLI's jar names no main class. The shim also keeps firebase-tools, which makes its
    jar executable, from writing to a file that belongs to somebody else. Safe to call at once
    from several processes.
    """
    target = jar.resolve(strict=True)
    content = shim_manifest(target)
    digest = hashlib.sha256(content).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agent-turns"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"firestore-emulator-{digest}.jar"
    if not made.exists():
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr(_MANIFEST, content)
        Path(name).replace(made)
    return made


def shim_manifest(target: Path) -> bytes:
    """Return the manifest of a shim for the jar at that absolute path.

    A line of a manifest holds at most 72 bytes; a longer one goes on after a newline and a space.
    The path is written as a URL, so it is ASCII and without spaces.
    """
    lines = ("Manifest-Version: 1.0", f"Main-Class: {MAIN_CLASS}", f"Class-Path: {target.as_uri()}")
    return b"".join(_wrap(line.encode("ascii")) for line in lines)


def _wrap(line: bytes) -> bytes:
    parts = [line[:72]] + [b" " + line[at : at + 71] for at in range(72, len(line), 71)]
    return b"".join(part + b"\r\n" for part in parts)


def _names_main_class(jar: Path) -> bool:
    with zipfile.ZipFile(jar) as archive:
        if _MANIFEST not in archive.namelist():
            return False
        return b"\nMain-Class:" in b"\n" + archive.read(_MANIFEST)


def _cached() -> Path | None:
    name = node.firestore_emulator_jar()
    folder = os.environ.get("FIREBASE_EMULATORS_PATH") or "~/.cache/firebase/emulators"
    return Path(folder).expanduser() / name if name else None


def _gcloud_sdks() -> Iterator[Path]:
    gcloud = shutil.which("gcloud")
    if gcloud is not None:
        yield Path(gcloud).resolve().parent.parent
    for folder in _SDK_FOLDERS:
        yield Path(folder).expanduser()
    if gcloud is not None:  # Asked last: it takes a second to answer.
        answer = subprocess.run(
            [gcloud, "info", "--format=value(installation.sdk_root)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode == 0 and answer.stdout.strip():
            yield Path(answer.stdout.strip())


if __name__ == "__main__":
    try:
        found = locate()
    except ProblemError as problem:
        sys.exit(str(problem))
    if found is None:
        sys.exit("The Firestore emulator was not found on this machine.")
    print(found)
