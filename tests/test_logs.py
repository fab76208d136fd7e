"""Lines of the log, where one is written while another one is."""

from __future__ import annotations

import gc
import json
import logging
import threading
from collections.abc import Callable, ItemsView
from typing import Any

import pytest

from functions import logs
from tests.support.patience import PATIENCE_SECONDS

library = logging.getLogger(__name__)
library.propagate = False
library.addHandler(logs._Strays())


class Unclosed:
    """As a library's connection that nobody closed: it says so when it is cleared away."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        library.warning("unclosed")


class Clearing(dict[str, Any]):
    """A value during whose reading Python clears away what nobody holds: it may do so any time."""

    before: Callable[[], object] = staticmethod(lambda: None)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # of the same kind
        self.before()
        gc.collect()
        return super().items()


class Said:
    """Words of a library that tell when they are put into a line."""

    def __init__(self) -> None:
        self.read = threading.Event()

    def __str__(self) -> str:
        self.read.set()
        return "said"


def written(capfd: pytest.CaptureFixture[str], *work: Callable[[], object]) -> list[str]:
    """The messages that come of `work`, each on a thread of its own, once all are through."""
    threads = [threading.Thread(target=one, daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    captured = capfd.readouterr()
    lines = (captured.out + captured.err).splitlines()
    return sorted(json.loads(line)["message"] for line in lines)


def test_a_line_is_written_while_the_same_thread_writes_another(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Both come out whole. A thread that waited for itself would hold up all that log after it."""
    Unclosed()
    assert written(capfd, lambda: logs.info("outer", value=Clearing())) == ["outer", "unclosed"]


def test_lines_of_two_threads_do_not_wait_for_each_other(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A library's that waits for the one being written, in the midst of which there is another."""
    Unclosed()
    said, reading = Said(), threading.Event()
    value = Clearing()

    def let_the_other_come() -> None:
        reading.set()
        assert said.read.wait(PATIENCE_SECONDS)

    def say() -> None:
        assert reading.wait(PATIENCE_SECONDS)
        library.warning("%s", said)

    value.before = let_the_other_come
    messages = written(capfd, lambda: logs.info("outer", value=value), say)
    assert messages == ["outer", "said", "unclosed"]
