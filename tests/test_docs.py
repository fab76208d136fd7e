"""The documents hang together, and say what the code has: links, functions, settings, codes."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import main
from functions.errors import Answered
from functions.settings import Settings

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CALLED = re.compile(r"(?:/us-central1|\.cloudfunctions\.net|\$at)/(\w+)")
READS_A_SETTING = {"number", "whole", "choice", "get", "IntParam"}
OF_THE_PLATFORM = re.compile(
    r"FUNCTIONS_EMULATOR|FIREBASE_CONFIG|CLOUD_TASKS_EMULATOR_HOST|K_[A-Z]+|GCLOUD_PROJECT"
)
FAILS_A_TURN = {"TurnFailed", "ModelFailed", "_failure"}


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


def test_every_function_that_a_document_calls_is_deployed() -> None:
    """By the name that it is deployed under."""
    deployed = {
        name for name, value in vars(main).items() if hasattr(value, "__firebase_endpoint__")
    }
    called = {name for path in documents() for name in CALLED.findall(path.read_text())}
    assert called
    assert called <= deployed


def code_of_the_package() -> Iterator[ast.Call]:
    """Every call in the deployed code that has a word as its first argument."""
    for path in (ROOT / "functions").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(word_of(node), str):
                yield node


def word_of(call: ast.Call) -> object:
    """Its first argument, if that is written out."""
    first = call.args[0]
    return first.value if isinstance(first, ast.Constant) else None


def name_of(call: ast.Call) -> str:
    """The function that is called."""
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_every_setting_is_documented_with_its_default() -> None:
    """And none that there is not."""
    rows = re.findall(
        r"(?m)^\| `([A-Z_]+)` \| (\S+) \|", (ROOT / "docs" / "configure.md").read_text()
    )
    read = {
        str(word_of(call))
        for call in code_of_the_package()
        if name_of(call) in READS_A_SETTING and re.fullmatch("[A-Z_]+", str(word_of(call)))
    }
    assert {name for name, _default in rows} == {
        name for name in read if not OF_THE_PLATFORM.fullmatch(name)
    }
    defaults = Settings.from_environ({"THREADS": "40"})
    told = {name.lower(): default for name, default in rows}
    numbers = {name for name in told if isinstance(getattr(defaults, name, None), (int, float))}
    for name in numbers:
        default = told[name]
        assert getattr(defaults, name) == (
            default == "true" if default in {"true", "false"} else float(default)
        )


def leaves(error: type[Answered]) -> Iterator[type[Answered]]:
    """The errors that are raised: each has a code of its own."""
    kinds = error.__subclasses__()
    for kind in kinds:
        yield from leaves(kind)
    if not kinds:
        yield error


def protocol(heading: str) -> str:
    """A section of the protocol."""
    text = (ROOT / "docs" / "PROTOCOL.md").read_text()
    return re.split(r"(?m)^##+ ", text.partition(f"# {heading}\n")[2])[0]


def test_the_codes_of_answers_are_those_of_the_protocol() -> None:
    """Each with its status; `internal` is the edge's own."""
    told = set(re.findall(r"\b(\d{3})(?: \|)?\s+`(\w+)`", protocol("Answers")))
    raised = {(str(error.status), error.code) for error in leaves(Answered)}
    assert told == raised | {("500", "internal")}


def test_the_codes_of_error_events_are_those_of_the_protocol() -> None:
    """`gone` is passed on from what could not be read."""
    told = set(re.findall(r"(?m)^\| `(\w+)` \|", protocol("Events").partition("The codes of")[2]))
    raised = {str(word_of(call)) for call in code_of_the_package() if name_of(call) in FAILS_A_TURN}
    assert told == raised | {"gone"}
