"""The measurements of one container: cold start, memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dev.bench import cold_start, memory
from dev.project import ROOT

PRINTED = """import time: self [us] | cumulative | imported package
import time:       100 |        100 |     flask.globals
import time:       300 |        400 |   flask
import time:        50 |        450 | main
not of it
"""


def test_an_import_time_table_is_read_and_summed_by_package() -> None:
    """Own times add up; a module's whole time has what it imports."""
    imports = cold_start.parse(PRINTED)
    assert [one.module for one in imports] == ["flask.globals", "flask", "main"]
    assert imports[-1].whole == pytest.approx(450e-6)
    summed = [(name, round(own * 1e6), count) for name, own, count in cold_start.packages(imports)]
    assert summed == [("flask", 400, 2), ("main", 50, 1)]


def test_the_command_prints_a_median_and_tables() -> None:
    """Whether it is quick is for a quiet machine to say, not for this test."""
    command = [sys.executable, "-m", "dev.bench.cold_start", "--runs", "1", "--top", "50"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert "import main: median" in done.stdout
    assert "| firebase_functions |" in done.stdout or "| flask |" in done.stdout
    assert "| main | " in done.stdout


@pytest.mark.emulator
def test_memory_and_threads_of_open_streams_are_measured(
    firestore_emulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream with its turn takes threads, and some memory."""
    monkeypatch.setattr(memory, "SETTLE_SECONDS", 1.0)
    idle = memory.measure(firestore_emulator, 0)
    busy = memory.measure(firestore_emulator, 3)
    assert busy.threads >= idle.threads + 3 * 3
    assert 50 < idle.resident_mib < 1000
    assert busy.cpu >= 0
