"""The client's benchmark runs from end to end; its figures are not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dev.project import ROOT


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("chromium")  # it skips the test where there is none
def test_a_quick_run_reports_every_stream_and_parser(tmp_path: Path) -> None:
    """Both pages for each stream, and a line for each size."""
    report = tmp_path / "report.md"
    run = subprocess.run(
        [sys.executable, "-m", "dev.bench.client", "--quick", "--report", report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    rows = [line.split(" | ") for line in report.read_text("utf-8").splitlines()]
    pages = [row[1] for row in rows if len(row) == 10]
    assert pages[2:] == ["ours", "naive"] * 2
    assert {"| 0.05 MB", "| 0.1 MB"} <= {row[0] for row in rows}
