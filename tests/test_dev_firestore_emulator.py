"""Finding the Firestore emulator's jar, and the shim that makes a bare one runnable."""

import shutil
import subprocess
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev import firestore_emulator, java, node
from dev.project import ProblemError


def jar(path: Path, manifest: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\n{manifest}")
    return path


def class_path(shim: Path) -> str | None:
    """The manifest's format is that of mail headers, continuation lines included."""
    with zipfile.ZipFile(shim) as archive:
        headers = message_from_bytes(archive.read("META-INF/MANIFEST.MF"))
    value = headers["Class-Path"]
    return value.replace("\r\n ", "") if value else None


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep this machine's own emulators out of sight."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(firestore_emulator, "_SDK_FOLDERS", ("~/google-cloud-sdk",))
    for variable in (firestore_emulator.OVERRIDE, "FIREBASE_EMULATORS_PATH"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@given(st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=300))
def test_the_manifest_keeps_to_72_bytes_a_line_and_loses_nothing(name: str) -> None:
    target = Path("/", name)
    manifest = firestore_emulator.shim_manifest(target)
    lines = manifest.split(b"\r\n")
    assert lines.pop() == b""
    assert all(len(line) <= 72 for line in lines)
    assert f"Class-Path: {target.as_uri()}\r\n".encode() in manifest.replace(b"\r\n ", b"")


@pytest.mark.usefixtures("nowhere")
def test_there_may_be_none() -> None:
    assert firestore_emulator.locate() is None


def test_the_gcloud_component_is_found_and_shimmed(nowhere: Path) -> None:
    component = nowhere / "google-cloud-sdk" / firestore_emulator._COMPONENT
    found = firestore_emulator.shim(jar(component))
    assert firestore_emulator.locate() == found
    assert found.parent == nowhere / "cache" / "agent-turns"
    assert class_path(found) == component.as_uri()


def test_the_component_is_found_through_the_gcloud_command(nowhere: Path) -> None:
    component = jar(nowhere / "elsewhere" / firestore_emulator._COMPONENT)
    command = nowhere / "elsewhere" / "bin" / "gcloud"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    (nowhere / "bin").mkdir()
    (nowhere / "bin" / "gcloud").symlink_to(command)
    assert firestore_emulator.locate() == firestore_emulator.shim(component)


def test_firebase_tools_own_download_comes_before_the_gcloud_component(nowhere: Path) -> None:
    jar(nowhere / "google-cloud-sdk" / firestore_emulator._COMPONENT)
    name = node.firestore_emulator_jar()
    assert name is not None
    cached = jar(nowhere / ".cache" / "firebase" / "emulators" / name)
    assert firestore_emulator.locate() == cached


def test_the_variable_comes_before_everything(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar(nowhere / "google-cloud-sdk" / firestore_emulator._COMPONENT)
    runnable = jar(nowhere / "mine.jar", f"Main-Class: {firestore_emulator.MAIN_CLASS}\r\n")
    monkeypatch.setenv(firestore_emulator.OVERRIDE, str(runnable))
    assert firestore_emulator.locate() == runnable


def test_a_bare_jar_in_the_variable_comes_back_as_a_shim(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = jar(nowhere / "a long name, with spaces and ä" / ("x" * 90) / "bare.jar")
    monkeypatch.setenv(firestore_emulator.OVERRIDE, str(bare))
    found = firestore_emulator.locate()
    assert found is not None
    assert class_path(found) == bare.as_uri()


def test_a_variable_that_names_no_jar_is_a_plain_problem(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(firestore_emulator.OVERRIDE, str(nowhere / "missing.jar"))
    with pytest.raises(ProblemError, match="not a jar file"):
        firestore_emulator.locate()


@pytest.mark.emulator
@pytest.mark.usefixtures("firestore_emulator")
def test_java_runs_a_jar_through_its_shim_whatever_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = firestore_emulator.locate()
    assert emulator is not None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    odd = tmp_path / "with spaces, ümlauts and more than seventy-two bytes in one line" / "e.jar"
    odd.parent.mkdir()
    shutil.copy(emulator, odd)
    shim = firestore_emulator.shim(odd)
    answer = subprocess.run(
        [java.locate(), "-jar", shim, "--help"], capture_output=True, text=True, check=False
    )
    assert "--port" in answer.stdout + answer.stderr
