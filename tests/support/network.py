"""A host of its own for a client, on a cable that can be pulled: nothing closes or answers."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from typing import Self


class Unavailable(Exception):
    """This machine lets nobody here make a network namespace."""


class FarHost:
    """A network namespace of Linux, joined to this one by two ends of a cable. A context manager.

    Raises Unavailable on entry where that needs more rights than there are.
    """

    def __init__(self) -> None:
        self._name = f"far{secrets.token_hex(3)}"
        net = f"10.213.{secrets.randbelow(250)}"
        self.near, self._far = f"{net}.1", f"{net}.2"
        """The near end's address, where a server is reached from the far host."""

    def __enter__(self) -> Self:
        if shutil.which("ip") is None:
            raise Unavailable("there is no `ip` command (package iproute2)")
        _ip("netns", "add", self._name)
        try:
            _ip("link", "add", f"{self._name}n", "type", "veth",
                "peer", "name", "far", "netns", self._name)  # fmt: skip
            _ip("addr", "add", f"{self.near}/30", "dev", f"{self._name}n")
            _ip("link", "set", f"{self._name}n", "up")
            _ip("-n", self._name, "addr", "add", f"{self._far}/30", "dev", "far")
            _ip("-n", self._name, "link", "set", "far", "up")
        except Unavailable:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["ip", "netns", "del", self._name], check=False, capture_output=True)

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command on the far host, its output in a pipe."""
        line = ["ip", "netns", "exec", self._name, *command]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def pull_the_cable(self) -> None:
        """From now on no packet comes or goes; the far host's sockets stay open."""
        _ip("-n", self._name, "link", "set", "far", "down")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(done.stderr.strip())
