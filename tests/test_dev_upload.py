"""What `firebase deploy` uploads, asked of firebase-tools' own code."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from dev import node
from dev.project import ROOT, read
from tests.support.patience import PATIENCE_SECONDS

_PACK = """
const [module, source, config] = JSON.parse(process.argv[1]);
require(module).prepareFunctionsUpload(source, source, config, [], undefined, {})
  .then((packed) => console.log(JSON.stringify([packed.pathToSource, packed.hash])));
"""


def packed(root: Path) -> tuple[set[str], str]:
    """The files of the archive that a deployment uploads, and the hash by which it is compared."""
    module = node.PACKAGE / "lib" / "deploy" / "functions" / "prepareFunctionsUpload.js"
    words = json.dumps([str(module), str(root), read().config["functions"]])
    done = subprocess.run(
        [node.locate(), "-e", _PACK, words],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    path, digest = json.loads(done.stdout.splitlines()[-1])
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    Path(path).unlink()
    return names, digest


def sources() -> set[str]:
    """What is needed to serve."""
    return {"main.py", "requirements.txt"} | {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "functions").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what is in version control, and of what a working copy has beside it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # not one that is deleted here
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_functions_are_uploaded_and_nothing_else() -> None:
    """Of this working copy, with all that lies around in it."""
    names, _digest = packed(ROOT)
    assert not names - sources(), "name these in functions.ignore of firebase.json"
    assert not sources() - names, "a pattern of functions.ignore matches one of these names"


def test_a_change_that_changes_no_function_deploys_nothing(checkout: Path) -> None:
    """The CLI skips a function whose source has the hash it had."""
    names, before = packed(checkout)
    assert names == sources()
    for changed in ("README.md", "docs/PROTOCOL.md", "firestore.rules", ".env.other"):
        with (checkout / changed).open("a") as file:
            file.write("changed\n")
    assert packed(checkout) == (names, before)
    with (checkout / "functions" / "settings.py").open("a") as file:
        file.write("# changed\n")
    assert packed(checkout)[1] != before


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".env.local",
        ".env.some-project",
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
    """Settings are sent as the functions' environment, not as files."""
    for each in (name, "main.py"):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).touch()
    assert packed(tmp_path)[0] == {"main.py"}


def test_no_package_json_at_the_root_makes_firebase_tools_refuse_the_project() -> None:
    """It would take the functions for Node.js."""
    assert not (ROOT / "package.json").exists()


def test_the_codebase_is_named() -> None:
    """Deploying into a project that has functions of its own deletes none of them."""
    functions = read().config["functions"]
    assert functions["source"] == "."
    assert functions["codebase"] == "agent-turns"


_GROUP = """
const [lib, have] = JSON.parse(process.argv[1]);
const backend = require(lib + "/deploy/functions/backend.js");
const helper = require(lib + "/deploy/functions/functionsDeployHelper.js");
const want = { "agent-turns": backend.of(
  { id: "start_turn", project: "p", region: "us-central1", platform: "gcfv2" }) };
const grouped = helper.groupEndpointsByCodebase(want, have);
console.log(JSON.stringify(backend.allEndpoints(grouped["agent-turns"]).map((one) => one.id)));
"""


def touched(*have: tuple[str, str]) -> list[str]:
    """Of functions that a project has, by id and codebase, those that deploying ours considers."""
    there = [
        {"id": name, "project": "p", "region": "us-central1", "codebase": codebase}
        for name, codebase in have
    ]
    words = json.dumps([str(node.PACKAGE / "lib"), there])
    done = subprocess.run(
        [node.locate(), "-e", _GROUP, words],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_functions_of_another_codebase_are_left_alone_unless_they_have_our_names() -> None:
    """What is considered and not declared is deleted; what has our name is replaced, whoever's."""
    assert touched(("api", "default"), ("cron", "theirs")) == []
    assert touched(("api", "default"), ("old_turns", "agent-turns")) == ["old_turns"]
    assert touched(("start_turn", "default")) == ["start_turn"]
