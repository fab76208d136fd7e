"""The log of a server of tests can be read while it is written."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from tests.support.server import whole_lines


def test_a_log_can_be_read_while_it_is_written() -> None:
    """No line is lost, torn or overwritten, however often somebody looks."""
    print_lines = "for n in range(20_000): print(n, 'x' * 50, flush=True)"
    with tempfile.TemporaryFile() as log:
        with subprocess.Popen([sys.executable, "-c", print_lines], stdout=log) as process:
            while process.poll() is None:
                lines = whole_lines(log.fileno()).splitlines()
                assert lines == [f"{n} {'x' * 50}" for n in range(len(lines))]
        assert len(whole_lines(log.fileno()).splitlines()) == 20_000
