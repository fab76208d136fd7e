"""The benchmark of the journal runs from end to end; its figures are not judged here."""

import subprocess
import sys
from pathlib import Path

import pytest

from dev.project import ROOT


@pytest.mark.emulator
@pytest.mark.usefixtures("firestore_emulator")  # it skips where there is none
def test_a_quick_run_measures_everything_and_writes_a_report(tmp_path: Path) -> None:
    """One line of the table for every figure, and no process left to wait for."""
    report = tmp_path / "report.md"
    run = subprocess.run(
        [sys.executable, "-m", "dev.bench.journal", "--quick", "--report", report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert run.returncode == 0, run.stderr
    text = report.read_text("utf-8")
    for figure in ("commit of", "writes per", "replay of", "latency at", "lag at", "takeover"):
        assert f"\n| {figure}" in text or f" {figure} " in text
