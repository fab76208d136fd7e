"""The benchmark of the journal runs from end to end; its figures are not judged here."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from dev import processes
from dev.project import ROOT

MARK = "AGENT_TURNS_BENCH_TEST"


@pytest.mark.emulator
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("firestore_emulator")  # it skips the test where there is none
def test_a_quick_run_reports_every_figure_and_leaves_no_process(tmp_path: Path) -> None:
    """One line of the table at least for each of the six measurements."""
    report, mark = tmp_path / "report.md", uuid.uuid4().hex
    run = subprocess.run(
        [sys.executable, "-m", "dev.bench.journal", "--quick", "--report", report],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    lines = report.read_text("utf-8").splitlines()
    for figure in ("commit", "writes", "replay", "latency", "follower lag", "takeover"):
        assert any(line.startswith(f"| {figure}") for line in lines), figure
    assert processes.carrying(MARK, mark) == []
