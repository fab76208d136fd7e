"""The documents hang together: what they link to is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def documents() -> list[Path]:
    """Every Markdown file in version control."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).exists()]


def anchors(path: Path) -> set[str]:
    """The ids that GitHub gives a document's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", path.read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    """To a file, and to a heading in it."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target} is not there"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target} has no such heading"
