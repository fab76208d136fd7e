"""`make verify`, `make test`, `make format`: the checks of this repository, as CI runs them."""

from __future__ import annotations

import os
import subprocess
import sys

from dev import command, firestore_emulator, node, setup
from dev.project import ROOT, ProblemError
from dev.python import BIN

STAGES = {
    "format": [["npm", "run", "format:check"], ["ruff", "format", "--check"]],
    "lint": [["npm", "run", "lint"], ["ruff", "check"]],
    "types": [["npm", "run", "types"], ["mypy"]],
    "tests": [["npm", "run", "test"], ["pytest"]],
}
"""What each stage runs. `npm` runs a script of the client and of the page, where they have it."""
PARALLEL = ["-n", str(min(8, os.cpu_count() or 1)), "--dist", "loadfile"]
"""How all tests are run: most of them wait, for leases and processes, more than they compute."""
FORMAT = [["npm", "run", "format"], ["ruff", "format"], ["ruff", "check", "--fix"]]


def run(stages: list[str], extra: list[str]) -> int:
    """Run those stages in order up to the first that fails; return its exit status, or 0.

    The extra arguments go to the last command of all; with any, the last stage runs nothing else:
    they mean something to one tool. Tests that need the Firestore emulator skip, or in CI
    fail, where it cannot be had; the others run.
    """
    for stage in stages:
        if stage == "tests":
            try:
                firestore_emulator.ensure()
            except ProblemError as missing:
                print(f"\n{missing}\n", file=sys.stderr)
        lines = STAGES[stage]
        if extra and stage == stages[-1]:
            lines = [[*lines[-1], *extra]]
        elif stage == "tests":
            lines = [*lines[:-1], [*lines[-1], *PARALLEL]]
        for line in lines:
            print(f"== {stage}: {' '.join(line)}", flush=True)
            status = _call(line)
            if status:
                print(f"\nverify: the {stage} stage failed.", file=sys.stderr)
                return status
    return 0


def main() -> int:
    """Set up, then run what the first argument names: a stage, `all` or `fix`."""
    setup.ensure()
    name, *extra = sys.argv[1:]
    if name == "fix":
        return max(_call(line) for line in FORMAT)
    return run(list(STAGES) if name == "all" else [name], extra)


def _call(line: list[str]) -> int:
    if line[0] == "npm":
        command = [node.npm(), *line[1:], "--if-present"]
        folders = (node.CLIENT, node.PAGE)
        return max(subprocess.run(command, cwd=each, check=False).returncode for each in folders)
    return subprocess.run([BIN / line[0], *line[1:]], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(command.status(main))
