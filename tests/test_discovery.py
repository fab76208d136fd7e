"""What `firebase deploy` would declare, found out as firebase-tools finds it out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import firebase_functions
import pytest
import yaml

from dev import project
from dev.ports import free_port
from functions.settings import REGION
from tests.support.emulator import wait_for_port

ROOT = Path(__file__).parents[1]
SERVING = Path(firebase_functions.__file__).parent / "private" / "serving.py"
GUIDE = ROOT / "docs" / "guides" / "deploy.md"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is declared with the settings of `.env`."""
    return discover(tmp_path_factory.mktemp("home"))


def discover(home: Path, **settings: str) -> dict[str, Any]:
    """`/__/functions.yaml` of the SDK's own server, with no project, credentials or network."""
    port = free_port()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "ADMIN_PORT": str(port), **settings}
    process = subprocess.Popen(
        [sys.executable, str(SERVING)],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port, process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/__/functions.yaml") as answer:
            found: dict[str, Any] = yaml.safe_load(answer.read())
        return found
    finally:
        process.kill()
        process.wait()


def endpoints(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The declared functions by name."""
    found: dict[str, dict[str, Any]] = manifest["endpoints"]
    return found


def test_every_function_says_where_and_how_it_runs(manifest: dict[str, Any]) -> None:
    """Nothing is left to a default that may change, or differ between projects."""
    assert endpoints(manifest)
    for name, one in endpoints(manifest).items():
        assert one["platform"] == "gcfv2", name
        assert one["region"] == [REGION] == ["us-central1"], name
        assert one["availableMemoryMb"] >= 512, name
        assert one["cpu"] == 1, f"{name}: a concurrency above 1 needs a whole CPU"
        assert one["concurrency"] == "{{ params.THREADS }}", name
        assert one["maxInstances"] == "{{ params.MAX_INSTANCES }}", name
        assert one["minInstances"] in {0, "{{ params.MIN_INSTANCES }}"}, name
        assert one["timeoutSeconds"] in {60, 1800, 3600}, name
        if "httpsTrigger" in one:
            assert one["httpsTrigger"]["invoker"] == ["public"], name


def test_whoever_streams_may_take_an_hour(manifest: dict[str, Any]) -> None:
    """The platform's longest; the stream ends before it, for the client to resume."""
    for name in ("start_turn", "resume_turn", "run_tool_step"):
        assert endpoints(manifest)[name]["timeoutSeconds"] == 3600


def test_every_parameter_has_its_value_in_the_settings_file(manifest: dict[str, Any]) -> None:
    """A deployment that asks nobody needs them. Secrets are asked for, and kept elsewhere."""
    given = dict(re.findall(r"(?m)^(\w+)=(.*)$", (ROOT / ".env").read_text()))
    for param in manifest["params"]:
        if param["type"] != "secret":
            assert str(given.get(param["name"])) == str(param["default"]), param["name"]


def test_the_guide_says_what_is_deployed(manifest: dict[str, Any]) -> None:
    """Each function with its options, as it stands in `main`."""
    row = re.compile(r"\| `(\w+)` \| (\d+) MiB \| (\d+) \| (\d+) s \| (.+?) \| (.+?) \|")
    told = {name: rest for name, *rest in row.findall(GUIDE.read_text())}
    declared = {
        name: [
            str(one["availableMemoryMb"]),
            str(one["cpu"]),
            str(one["timeoutSeconds"]),
            "`MIN_INSTANCES`" if one["minInstances"] else "0",
            "everybody" if "httpsTrigger" in one else "Cloud Tasks",
        ]
        for name, one in endpoints(manifest).items()
    }
    assert told == declared


def test_a_project_chooses_its_region(tmp_path: Path) -> None:
    """By a setting: no code is edited, so an upgrade overwrites nothing."""
    declared = endpoints(discover(tmp_path, REGION="europe-west1"))
    assert {region for one in declared.values() for region in one["region"]} == {"europe-west1"}


def test_the_local_stack_and_the_page_go_by_the_region_of_the_settings(tmp_path: Path) -> None:
    """The same paths in all."""
    page = json.loads((ROOT / "public" / "config.json").read_text())
    assert page["region"] == project.read().region
    local = project.Project(tmp_path, {})
    assert local.region == REGION
    (tmp_path / ".env").write_text("REGION=europe-west1\n")
    assert local.region == "europe-west1"
    (tmp_path / f".env.{project.LOCAL_PROJECT}").write_text("REGION=asia-east1\n")
    assert local.region == "asia-east1"


def test_discovery_is_quick_enough_for_firebase_tools() -> None:
    """It gives up on a `main` that takes ten seconds to import. Of the processor's time: how long
    other programs held it up meanwhile says nothing.
    """
    before = os.times()
    subprocess.run([sys.executable, "-c", "import main"], cwd=ROOT, check=True)
    after = os.times()
    used = after.children_user + after.children_system
    assert used - before.children_user - before.children_system < 10


def test_only_the_agent_that_is_served_asks_for_its_secret(
    manifest: dict[str, Any], tmp_path: Path
) -> None:
    """The demo deploys with no account anywhere; Gemini's key goes to what runs turns alone."""
    assert not any(one.get("secretEnvironmentVariables") for one in endpoints(manifest).values())
    declared = endpoints(discover(tmp_path, AGENT="gemini"))
    asking = {name for name, one in declared.items() if one.get("secretEnvironmentVariables")}
    assert asking == {"start_turn", "resume_turn", "run_tool_step", "finishturn"}
    assert declared["start_turn"]["secretEnvironmentVariables"] == [{"key": "GEMINI_API_KEY"}]
