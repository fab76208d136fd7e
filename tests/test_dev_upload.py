"""What `firebase deploy` uploads, asked of firebase-tools' own code."""

import json
import subprocess
from pathlib import Path

import pytest

from dev import node
from dev.project import ROOT, read

# The names that firebase-tools itself adds to the list before it packs the source.
_ALWAYS = ["firebase-debug.log", "firebase-debug.*.log", ".runtimeconfig.json"]
_LIST = """
const [module, path, ignoreStrings] = JSON.parse(process.argv[1]);
require(module).readdirRecursive({ path, ignoreStrings })
  .then((files) => console.log(JSON.stringify(files.map((file) => file.name))));
"""


def uploaded(root: Path) -> set[str]:
    module = node.PACKAGE / "lib" / "fsAsync.js"
    ignore = [*read().config["functions"]["ignore"], *_ALWAYS]
    words = subprocess.run(
        [node.locate(), "-e", _LIST, json.dumps([str(module), str(root), ignore])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {Path(name).relative_to(root).as_posix() for name in json.loads(words)}


def wanted(path: str) -> bool:
    return (
        path in {"main.py", "requirements.txt"}
        or path.startswith("functions/")
        or ("/" not in path and path.startswith(".env"))
    )


def test_nothing_but_the_functions_and_their_settings_is_uploaded() -> None:
    unwanted = {path for path in uploaded(ROOT) if not wanted(path)}
    assert not unwanted, "name these in functions.ignore of firebase.json"


def test_every_source_file_of_the_functions_is_uploaded() -> None:
    sources = {"main.py", "requirements.txt"} | {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "functions").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= uploaded(ROOT), "a pattern of functions.ignore matches one of these names"


@pytest.mark.parametrize(
    "name",
    [
        ".env.local",
        ".git/config",
        ".secret.local",
        "dev/firebase-tools/node_modules/x/index.js",
        "firebase-debug.1.log",
        "firestore-debug.log",
        "functions/__pycache__/x.pyc",
        "venv/bin/python",
    ],
)
def test_what_is_of_one_machine_stays_there(tmp_path: Path, name: str) -> None:
    for each in (name, "main.py", ".env", ".env.some-project"):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).touch()
    assert uploaded(tmp_path) == {"main.py", ".env", ".env.some-project"}


def test_no_package_json_at_the_root_makes_firebase_tools_refuse_the_project() -> None:
    assert not (ROOT / "package.json").exists()
