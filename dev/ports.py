"""Ports for servers that several runs start side by side."""

from __future__ import annotations

import contextlib
import secrets
import socket

_PORTS = range(15_000, 32_000)
"""Below those that systems give to connections: one of those can be in use a moment later."""


def free_port() -> int:
    """Return a port of this machine that nobody listens on. Drawn by lot, so that two who ask at
    the same moment get two.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
