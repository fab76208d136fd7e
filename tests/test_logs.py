"""Lines of the log, where one is written while another one is."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import ItemsView
from typing import Any

import pytest

from functions import logs
from tests.support.patience import PATIENCE_SECONDS


class Unclosed:
    """As a library's connection that nobody closed: it says so when it is cleared away."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        logs.warning("unclosed")


class Clearing(dict[str, Any]):
    """A value during whose reading Python clears away what nobody holds: it may do so any time."""

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # of the same kind
        gc.collect()
        return super().items()


def test_a_line_is_written_while_the_same_thread_writes_another(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Both come out whole. A thread that waited for itself would hold up all that log after it."""
    Unclosed()
    writer = threading.Thread(target=lambda: logs.info("outer", value=Clearing(a=1)), daemon=True)
    writer.start()
    writer.join(PATIENCE_SECONDS)
    assert not writer.is_alive()
    captured = capfd.readouterr()
    lines = [json.loads(line) for line in (captured.out + captured.err).splitlines()]
    assert sorted(line["message"] for line in lines) == ["outer", "unclosed"]
