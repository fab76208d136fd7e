"""Finding the interpreter of the functions' runtime."""

import sys
from pathlib import Path

import pytest

from dev import python
from dev.project import ProblemError


def fake(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return made


def test_the_running_interpreter_is_taken_if_its_version_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = fake(tmp_path, "python", "echo 3.99")
    monkeypatch.setattr(sys, "executable", str(running))
    assert python.find("3.99") == running


def test_an_interpreter_inside_venv_cannot_make_venv_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "VENV", tmp_path / "venv")
    inside = fake(tmp_path / "venv" / "bin", "python3.99", "echo 3.99")
    outside = fake(tmp_path / "bin", "python3.99", "echo 3.99")
    monkeypatch.setenv("PATH", f"{inside.parent}:{outside.parent}")
    assert python.find("3.99") == outside


def test_a_shim_that_runs_nothing_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path / "shims", "python3.99", "echo 'command not found' >&2; exit 127")
    good = fake(tmp_path / "later", "python3.99", "echo 3.99")
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'later'}")
    assert python.find("3.99") == good


def test_pyenv_is_asked_where_path_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = fake(tmp_path / "versions" / "3.99.1" / "bin", "python3.99", "echo 3.99")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert python.find("3.99") == good


def test_without_one_the_words_say_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(ProblemError, match=r"Python 3\.98 was not found(.|\n)*pyenv install 3\.98"):
        python.find("3.98")
