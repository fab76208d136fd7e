"""A TCP proxy that closes its client's socket in the middle of an event."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

_READ_BYTES = 65_536
_CUT_SECONDS = 10.0


@dataclass(frozen=True)
class Cut:
    """The end of a connection: when (monotonic), and how much of the last piece passed."""

    at: float
    passed: int
    held_back: int


class Proxy:
    """A context manager that serves one connection to a port of 127.0.0.1."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._cut_wanted = threading.Event()
        self._cut_done = threading.Event()
        self._cut: Cut | None = None
        self._client = socket.socket()
        self._server = socket.socket()

    def __enter__(self) -> Self:
        """Accept a connection from now on."""
        threading.Thread(target=self._serve, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all sockets."""
        for sock in (self._listener, self._client, self._server):
            sock.close()

    def cut(self) -> Cut:
        """Pass on half of what the server sends next, then close the connection on both sides.

        Raises:
            RuntimeError: the server sent nothing for a long while.
        """
        self._cut_wanted.set()
        self._cut_done.wait(_CUT_SECONDS)
        if self._cut is None:
            raise RuntimeError(f"there was nothing to cut within {_CUT_SECONDS:g} s")
        return self._cut

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # either end closed
            self._client, _ = self._listener.accept()
            self._server = socket.create_connection(("127.0.0.1", self._server_port))
            for sock in (self._client, self._server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._upstream, name="proxy-up", daemon=True).start()
            self._downstream()

    def _upstream(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(_READ_BYTES):
                self._server.sendall(data)

    def _downstream(self) -> None:
        while data := self._server.recv(_READ_BYTES):
            if not self._cut_wanted.is_set():
                self._client.sendall(data)
                continue
            passed = len(data) // 2
            self._client.sendall(data[:passed])
            for sock in (self._client, self._server):
                sock.shutdown(socket.SHUT_RDWR)
            self._cut = Cut(time.monotonic(), passed, len(data) - passed)
            self._cut_done.set()
            return
