"""Ending a stack: every process of it, and no other."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest

from dev import processes
from dev.project import ROOT

# A leader with a child in its group and a child in its own session,
# which starts one more and dies: the kinds of process that firebase-tools leaves.
_TREE = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[1] == "stubborn" else signal.SIG_DFL)
subprocess.Popen(["sleep", "300"])
subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"], start_new_session=True)
subprocess.Popen(["sh", "-c", "sleep 300 & exit"], start_new_session=True).wait()
print("started", flush=True)
time.sleep(300)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    processes.end(mark, 0)


def start_tree(mark: str, leader: str = "obedient") -> subprocess.Popen[str]:
    tree = subprocess.Popen(
        [sys.executable, "-c", _TREE, leader],
        env={**os.environ, processes.MARK_VARIABLE: mark},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert tree.stdout is not None
    with tree.stdout:
        assert tree.stdout.readline() == "started\n"
    return tree


def test_the_mark_finds_every_descendant_however_detached(mark: str) -> None:
    with start_tree(mark) as tree:
        assert tree.pid in processes.marked(mark)
        assert len(processes.marked(mark)) == 6
        assert processes.end(mark, tree.pid)
        assert processes.marked(mark) == []


def test_a_leader_that_does_not_listen_is_killed(mark: str) -> None:
    with start_tree(mark, "stubborn") as tree:
        assert processes.end(mark, tree.pid)
        assert processes.marked(mark) == []
    assert tree.returncode == -signal.SIGKILL


def test_another_stack_is_left_alone(mark: str) -> None:
    other = uuid.uuid4().hex
    with start_tree(mark) as tree, start_tree(other) as bystander:
        assert processes.end(mark, tree.pid)
        assert len(processes.marked(other)) == 6
        assert processes.end(other, bystander.pid)


def test_a_leader_that_obeys_is_not_killed(mark: str) -> None:
    obeys = "import signal, sys; signal.signal(2, lambda *_: sys.exit(7)); print(1, flush=True); "
    with subprocess.Popen(
        [sys.executable, "-c", obeys + "signal.pause()"],
        env={**os.environ, processes.MARK_VARIABLE: mark},
        stdout=subprocess.PIPE,
    ) as leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        assert processes.end(mark, leader.pid)
    assert leader.returncode == 7


def test_a_stack_that_is_gone_has_been_ended(mark: str) -> None:
    assert processes.end(mark, 0)


def test_a_pid_without_the_mark_is_never_signalled(mark: str) -> None:
    assert processes.end(mark, os.getpid())


def test_the_reaper_ends_the_stack_when_its_launcher_is_gone(mark: str) -> None:
    with (
        start_tree(mark) as tree,
        subprocess.Popen(
            [sys.executable, "-m", "dev.processes", mark], cwd=ROOT, stdin=subprocess.PIPE
        ) as reaper,
    ):
        assert reaper.stdin is not None
        reaper.stdin.write(str(tree.pid).encode())
        reaper.stdin.flush()
        time.sleep(0.3)
        assert reaper.poll() is None
        assert len(processes.marked(mark)) == 6
        reaper.communicate()
        assert reaper.returncode == 0
        assert processes.marked(mark) == []
