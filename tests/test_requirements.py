"""What is installed is what the two files of requirements say, all of it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
DEPLOYED = ROOT / "requirements.txt"
INSTALLED_HERE = (DEPLOYED, ROOT / "dev" / "requirements.txt")


@pytest.mark.parametrize("files", [(DEPLOYED,), INSTALLED_HERE], ids=["deployed", "here"])
def test_every_package_that_gets_installed_is_pinned(files: tuple[Path, ...]) -> None:
    """A package that another one brings is pinned, too: add the lines that this test names."""
    named = [one for file in files for one in _requirements(file)]
    pinned = {f"{canonicalize_name(one.name)}{one.specifier}" for one in named}
    needed = {f"{name}=={version}" for name, version in _installed(named).items()}
    assert sorted(needed - pinned) == [], "pin these in requirements.txt"
    assert sorted(pinned - needed) == [], "installed are other versions: make setup"


def test_nothing_is_pinned_that_nothing_needs() -> None:
    """A package that nothing needs any more goes from the list, too."""
    for file in INSTALLED_HERE:
        first, below = file.read_text("utf-8").split("\n# What those need", 1)
        brought = _installed(_requirements(file, first))
        left = {canonicalize_name(one.name) for one in _requirements(file, below)} - set(brought)
        assert left == set(), file


def _requirements(file: Path, text: str | None = None) -> list[Requirement]:
    lines = (file.read_text("utf-8") if text is None else text).splitlines()
    # The rest of the comment that the text was cut in is no requirement.
    return [Requirement(line) for line in lines if "==" in line and not line.startswith("#")]


def _installed(requirements: Iterable[Requirement]) -> dict[str, str]:
    """The versions of those and of all that they need on this machine, extras included."""
    found: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    todo = list(requirements)
    while todo:
        one = todo.pop()
        for extra in ("", *one.extras):
            name = canonicalize_name(one.name)
            if (name, extra) in done:
                continue
            done.add((name, extra))
            package = distribution(one.name)
            found[name] = package.version
            needs = [Requirement(text) for text in package.requires or []]
            todo += [
                need
                for need in needs
                if need.marker is None or need.marker.evaluate({"extra": extra})
            ]
    return found
