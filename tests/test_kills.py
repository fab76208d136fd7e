"""Containers killed at random moments of a turn: nothing twice, nothing lost, nothing stuck."""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from dev import processes
from dev.project import ROOT

MARK = "AGENT_TURNS_KILLS_TEST"


@pytest.mark.emulator
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("firestore_emulator")  # it skips the test where there is none
@pytest.mark.parametrize(("agent", "count"), [("tools", 20), ("pydantic", 8)])
def test_containers_killed_at_random(tmp_path: Path, agent: str, count: int) -> None:
    """Every promise holds for every turn, the report says so, and no process is left."""
    report, mark = tmp_path / "report.md", uuid.uuid4().hex
    options = ["--agent", agent, "--count", str(count), "--seed", "20", "--report", str(report)]
    run = subprocess.run(
        [sys.executable, "-m", "dev.kills", *options],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(
        rf"\*\*{count} containers killed in \d+ turns: no effect twice", report.read_text()
    )
    assert processes.carrying(MARK, mark) == []
