"""A TCP proxy in front of a server that cuts, stalls, times out and slows real connections.

It knows nothing of HTTP: bytes pass as they come, so it may stand in front of gRPC as well.
Downstream is the direction from the server to its client.

    with CuttingProxy(server_url) as proxy:
        proxy.cut_after_bytes(1000)
        httpx.get(proxy.url)  # ends inside the answer; the next request passes
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from .patience import PATIENCE_SECONDS

How = Literal["fin", "rst"]
Reason = Literal["cut", "bytes", "idle"]
_T = TypeVar("_T")
_READ_BYTES = 16_384
_SLICES_PER_SECOND = 20
_POLL_SECONDS = 0.002
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Cut:
    """A connection that the proxy ended: at which `time.monotonic()`, why, after how much."""

    at: float
    reason: Reason
    downstream_bytes: int


class CuttingProxy:
    """The proxy: a context manager that listens on a free port of 127.0.0.1 while it is open.

    An order has taken effect when its method returns. The kernel's buffers in the proxy are kept
    small (`buffer_bytes`), so that a client that does not read holds up its server, as soon as the
    server's own send buffer is full (about 2.5 MB on Linux unless the server sets SO_SNDBUF).
    """

    def __init__(self, server: str, *, buffer_bytes: int = 65_536) -> None:
        parts = urlsplit(server if "//" in server else f"//{server}")
        self._server = (socket.gethostbyname(parts.hostname or "127.0.0.1"), parts.port or 80)
        self._buffer_bytes = buffer_bytes
        self._port = 0
        self._connections: set[_Connection] = set()
        self._path = _Path()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0)
        self._port = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting-proxy")
        self._thread.start()
        self._do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._listener.close()

    @property
    def address(self) -> str:
        """Where clients connect, as host:port."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Where clients connect, as an http URL without a path."""
        return f"http://{self.address}"

    @property
    def connections(self) -> int:
        """How many connections the proxy has with clients, or with a server not told of a cut."""
        return len(self._connections)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Every cut so far, in order; what the server or its client ended is not among them."""
        return tuple(self._path.cuts)

    def cut(self, how: How = "fin", *, tell_server: bool = True) -> None:
        """Close all connections now.

        With `tell_server=False` the server's side stays open and whatever it sends is read and
        thrown away: that is what a front that hides disconnects does.
        """

        async def order() -> None:
            connections = tuple(self._connections)
            for connection in connections:
                connection.end(_Verdict("cut", how, tell_server=tell_server))
            for connection in connections:
                await connection.client_closed.wait()

        self._do(order())

    def cut_after_bytes(
        self, count: int | None, how: How = "fin", *, times: int | None = 1
    ) -> None:
        """Cut a connection when exactly `count` more bytes (headers included) went down it.

        Bytes are counted for each connection by itself: from now for those open, from their first
        for later ones. The first `times` connections (None: all) to get there are cut. Replaces
        the order before it; a count of None lifts it.
        """

        async def order() -> None:
            self._path.limit = None if count is None else _Limit(count, how, times)
            for connection in self._connections:
                connection.counted_from = connection.downstream_bytes

        self._do(order())

    def idle_timeout(self, seconds: float | None) -> None:
        """Cut a connection (by FIN) on which the server said nothing for so long; None lifts it.

        Silence is counted from the last byte down, the connection's start, or this order.
        """

        async def order() -> None:
            self._path.idle_seconds = seconds
            for connection in self._connections:
                connection.restart_idle_timer()

        self._do(order())

    def stall(self) -> None:
        """Forward nothing more in either direction, and close nothing: half open.

        Connections are still accepted, and what an end closes is kept from the other.
        """

        async def order() -> None:
            self._path.flowing.clear()

        self._do(order())

    def unstall(self) -> None:
        """Forward again, beginning with what was held back: nothing is lost."""

        async def order() -> None:
            self._path.flowing.set()

        self._do(order())

    def throttle(self, bytes_per_second: float | None) -> None:
        """Let bytes down each connection at no more than this rate; None lifts it."""

        async def order() -> None:
            self._path.bytes_per_second = bytes_per_second

        self._do(order())

    def _do(self, order: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(order, self._loop).result()

    async def _start(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    async def _stop(self) -> None:
        self._loop.remove_reader(self._listener)
        await _cancel(*[connection.task for connection in self._connections])

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the client has left the queue
            client, _ = self._listener.accept()
            connection = _Connection(client, self._server, self._buffer_bytes, self._path)
            self._connections.add(connection)
            connection.task.add_done_callback(partial(self._forget, connection))

    def _forget(self, connection: _Connection, _: asyncio.Task[None]) -> None:
        connection.close()
        self._connections.discard(connection)


def close_socket(sock: socket.socket, how: How) -> None:
    """Close a socket so that its peer sees a FIN, or an RST."""
    if how == "rst":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    else:
        sock.settimeout(0)
        with contextlib.suppress(OSError):  # BlockingIOError: nothing more to read
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(_READ_BYTES):  # unread bytes would turn the FIN into an RST
                pass
    sock.close()


@dataclass
class _Limit:
    count: int
    how: How
    times: int | None


@dataclass(frozen=True)
class _Verdict:
    reason: Reason | None
    how: How
    tell_server: bool = True


class _Path:
    """The orders in force, which all connections obey."""

    def __init__(self) -> None:
        self.cuts: list[Cut] = []
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.limit: _Limit | None = None
        self.idle_seconds: float | None = None
        self.bytes_per_second: float | None = None


class _Connection:
    """A client's socket and the server's, and the task that pumps between them."""

    def __init__(
        self, client: socket.socket, server: tuple[str, int], buffer_bytes: int, path: _Path
    ) -> None:
        self.downstream_bytes = 0
        self.counted_from = 0
        self.client_closed = asyncio.Event()
        self._client = client
        self._address = server
        self._server = socket.socket()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        for sock in (client, self._server):
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._verdict: asyncio.Future[_Verdict] = self._loop.create_future()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._how: How = "fin"
        self.task = self._loop.create_task(self._run())

    def end(self, verdict: _Verdict) -> None:
        """Have the connection ended so, unless it is ending already."""
        if not self._verdict.done():
            self._verdict.set_result(verdict)

    def restart_idle_timer(self) -> None:
        """Count the server's silence from now."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._path.idle_seconds is not None:
            self._idle_timer = self._loop.call_later(
                self._path.idle_seconds, self.end, _Verdict("idle", "fin")
            )

    def close(self) -> None:
        """Close what is still open of it."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._close_client()
        close_socket(self._server, self._how)

    async def _run(self) -> None:
        """Forward until both ends have closed or a verdict falls."""
        pumps = asyncio.create_task(self._forward())
        ends: set[asyncio.Future[Any]] = {pumps, self._verdict}
        try:
            self.restart_idle_timer()
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(pumps)
        if not self._verdict.done():
            return
        verdict = self._verdict.result()
        self._how = verdict.how
        if verdict.reason == "bytes" and verdict.how == "rst":
            await self._sent()
        if verdict.reason is not None:
            self._path.cuts.append(Cut(time.monotonic(), verdict.reason, self.downstream_bytes))
        if not verdict.tell_server:
            self._close_client()
            await self._drain_server()

    async def _forward(self) -> None:
        try:
            await self._loop.sock_connect(self._server, self._address)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._upstream())
                group.create_task(self._downstream())
        except* OSError:  # an end reset the connection, or the server took none
            await self._path.flowing.wait()
            self.end(_Verdict(None, "rst"))

    async def _upstream(self) -> None:
        while data := await self._loop.sock_recv(self._client, _READ_BYTES):
            await self._path.flowing.wait()
            await self._loop.sock_sendall(self._server, data)
        await self._path.flowing.wait()
        self._server.shutdown(socket.SHUT_WR)

    async def _downstream(self) -> None:
        while data := await self._loop.sock_recv(self._server, self._slice_bytes()):
            while data:
                await self._path.flowing.wait()
                piece = data[: min(self._slice_bytes(), self._bytes_to_limit())]
                await self._loop.sock_sendall(self._client, piece)
                data = data[len(piece) :]
                self.downstream_bytes += len(piece)
                self.restart_idle_timer()
                await self._obey_limit()
                if self._path.bytes_per_second is not None:
                    await asyncio.sleep(len(piece) / self._path.bytes_per_second)
        await self._path.flowing.wait()
        self._client.shutdown(socket.SHUT_WR)

    def _slice_bytes(self) -> int:
        rate = self._path.bytes_per_second
        return _READ_BYTES if rate is None else max(1, int(rate / _SLICES_PER_SECOND))

    def _bytes_to_limit(self) -> int:
        limit = self._path.limit
        if limit is None:
            return sys.maxsize
        return max(0, self.counted_from + limit.count - self.downstream_bytes)

    async def _obey_limit(self) -> None:
        limit = self._path.limit
        if limit is None or self._bytes_to_limit() > 0:
            return
        if limit.times is not None:
            limit.times -= 1
            if limit.times <= 0:
                self._path.limit = None
        self.end(_Verdict("bytes", limit.how))
        await asyncio.Event().wait()

    async def _sent(self) -> None:
        """Return once the client's kernel has every byte: a reset discards those still here."""
        with contextlib.suppress(TimeoutError):  # a client that does not read at all
            async with asyncio.timeout(PATIENCE_SECONDS):
                while any(fcntl.ioctl(self._client, termios.TIOCOUTQ, bytes(4))):
                    await asyncio.sleep(_POLL_SECONDS)

    async def _drain_server(self) -> None:
        with contextlib.suppress(OSError):
            while await self._loop.sock_recv(self._server, _READ_BYTES):
                pass

    def _close_client(self) -> None:
        if not self.client_closed.is_set():
            close_socket(self._client, self._how)
            self.client_closed.set()


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
