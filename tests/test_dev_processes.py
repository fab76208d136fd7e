"""Ending a stack: every process of it, and no other."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dev import processes
from dev.project import ROOT
from tests.support.patience import PATIENCE_SECONDS, wait_until

# A leader with a child in its group, a child in its own session, and a grandchild whose parent is
# gone: the kinds of process that firebase-tools leaves.
_TREE = """
import signal, subprocess, sys, time
on_interrupt = {"obedient": signal.SIG_DFL, "stubborn": signal.SIG_IGN}
signal.signal(signal.SIGINT, on_interrupt.get(sys.argv[1], lambda *_: sys.exit(7)))
subprocess.Popen(["sleep", "300"])
subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"], start_new_session=True)
subprocess.Popen(["sh", "-c", "sleep 300 & exit"], start_new_session=True).wait()
time.sleep(300)
"""
_TREE_SIZE = 6


@contextmanager
def started(leader: str = "obedient") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start the tree; give its mark and its leader; end it in any case."""
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-c", _TREE, leader],
        env={**os.environ, processes.MARK_VARIABLE: mark},
        start_new_session=True,
    ) as tree:
        try:
            wait_until(lambda: len(processes.marked(mark)) == _TREE_SIZE)
            yield mark, tree
        finally:
            processes.end(mark, tree.pid)


def test_every_descendant_is_found_and_ended_however_detached() -> None:
    with started() as (mark, tree):
        assert tree.pid in processes.marked(mark)
        assert processes.end(mark, tree.pid)
        assert processes.marked(mark) == []


def test_a_leader_that_does_not_listen_is_killed() -> None:
    with started("stubborn") as (mark, tree):
        assert processes.end(mark, tree.pid)
        assert processes.marked(mark) == []
    assert tree.returncode == -signal.SIGKILL


def test_another_stack_is_left_alone() -> None:
    with started() as (mark, tree), started() as (other, _):
        assert processes.end(mark, tree.pid)
        assert len(processes.marked(other)) == _TREE_SIZE


def test_a_leader_that_obeys_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_GENTLE_SECONDS", PATIENCE_SECONDS)
    with started("polite") as (mark, tree):
        assert processes.end(mark, tree.pid)
    assert tree.returncode == 7


def test_a_stack_that_is_gone_has_been_ended() -> None:
    assert processes.end(uuid.uuid4().hex, 0)


def test_a_pid_without_the_mark_is_never_signalled() -> None:
    assert processes.end(uuid.uuid4().hex, os.getpid())


def test_the_reaper_ends_the_stack_when_its_launcher_is_gone() -> None:
    with started() as (mark, tree):
        command = [sys.executable, "-m", "dev.processes", mark]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as reaper:
            assert reaper.stdin is not None
            reaper.stdin.write(str(tree.pid).encode())
            reaper.stdin.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                reaper.wait(0.5)
            assert len(processes.marked(mark)) == _TREE_SIZE
            reaper.communicate()
            assert reaper.returncode == 0
        assert processes.marked(mark) == []


_LET_GO = """
import subprocess, time
subprocess.Popen(["sh", "-c", "sleep 300 & exit"]).wait()
subprocess.Popen(["sleep", "300"])
time.sleep(300)
"""


def test_a_server_that_was_let_go_is_asked_to_finish_and_no_other() -> None:
    """Its shell is gone; its neighbour, whose parent lives, goes on."""
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-c", _LET_GO],
        env={**os.environ, processes.MARK_VARIABLE: mark},
        start_new_session=True,
    ) as leader:
        try:
            wait_until(lambda: len(processes.marked(mark)) == 3)
            (orphan,) = processes.dismiss_orphans(mark, leader.pid)
            wait_until(lambda: orphan not in processes.marked(mark))
            assert len(processes.marked(mark)) == 2
            assert processes.dismiss_orphans(mark, leader.pid) == []
        finally:
            processes.end(mark, leader.pid)
