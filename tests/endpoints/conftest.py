"""Fixtures of tests that call functions over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gate import Gate


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Where a script waits until the test opens it."""
    return Gate(tmp_path / "gate")
