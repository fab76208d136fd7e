"""A client that costs little: raw sockets, one thread, no decoding beyond what is measured.

Frames are looked for in the raw answer, the transfer encoding's lines included: a server writes
whole frames only, so these lines never stand inside one.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
import uuid
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from dev import token
from dev.project import LOCAL_PROJECT

_STAMP = re.compile(rb'\nevent: token\ndata: "([0-9]{6,})"\n\n')
_REWIND = b"\nevent: rewind\n"
_DONE = b"\nevent: done\n"
_ERROR = b"\nevent: error\n"
_FRAME_END = b"\n\n"
_READ_BYTES = 1 << 20
_TAIL_BYTES = 200
WARM_UP_SECONDS = 30.0
"""A process has so long for its first turn."""
_WINDOWS = 5
"""Tries to see a token."""
_T = TypeVar("_T")


def new_turn_id() -> str:
    """Return a turn id that nobody had before."""
    return str(uuid.uuid4())


def connect(port: int, turn_id: str, prompt: str | None) -> socket.socket:
    """Send a request: with a prompt to start that turn, without one to resume it from its start."""
    body = b"" if prompt is None else json.dumps({"prompt": prompt}).encode()
    lines = (
        f"{'GET' if prompt is None else 'POST'} / HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"X-Stream-Turn-Id: {turn_id}",
        f"X-Firebase-AppCheck: {app_check_token()}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    return connection


def app_check_token() -> str:
    """Return a token of the local stand-in; it is good for one call."""
    return token.encode(token.claims(LOCAL_PROJECT, token.APP, token.TTL_SECONDS, time.time()))


@dataclass(eq=False)
class Stream:
    """One response that is read as it comes. All times are the monotonic clock's, in ns."""

    connection: socket.socket
    emitted: array[int] = field(default_factory=lambda: array("q"))
    """When each token was emitted, as it says itself."""
    arrived: array[int] = field(default_factory=lambda: array("q"))
    """When each token arrived here."""
    rewound_at: int | None = None
    """When the first `rewind` arrived."""
    ended: bool = False
    """Whether the turn's terminal event arrived, or the connection's end."""
    _tail: bytes = b""
    _begun: bool = False

    @classmethod
    def open(cls, port: int, turn_id: str, prompt: str | None = None) -> Stream:
        """Start a turn, or without a prompt resume it."""
        return cls(connect(port, turn_id, prompt))

    def feed(self, data: bytes, now: int) -> None:
        """Take what arrived at `now`; empty at the connection's end."""
        if not self._begun and data:
            self._begun = True
            if not data.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"refused: {data[:2000].decode(errors='replace')}")
        ended = not data
        data = self._tail + data
        for stamp in _STAMP.findall(data):
            self.emitted.append(int(stamp))
            self.arrived.append(now)
        if self.rewound_at is None and _REWIND in data:
            self.rewound_at = now
        if _ERROR in data:
            raise RuntimeError(f"the turn failed: {data[-500:].decode(errors='replace')}")
        self.ended = ended or _DONE in data
        whole = data.rfind(_FRAME_END)
        self._tail = data if whole < 0 else data[whole + len(_FRAME_END) :]

    def lags_ms(self, since: int) -> list[float]:
        """How long each token emitted at or after `since` was under way, in ms."""
        pairs = zip(self.emitted, self.arrived)
        return [(arrived - emitted) / 1e6 for emitted, arrived in pairs if emitted >= since]


@dataclass
class Work:
    """What reading took the client itself."""

    cpu_share: float
    """Of one core."""
    queued_ms: list[float]
    """For each piece that arrived: how long it waited for the pieces read before it."""


def read(streams: Iterable[Stream], *, until: int, stop_on_rewind: bool = False) -> Work:
    """Read all of these streams until each has ended, or the monotonic clock says `until` (ns)."""
    queued: list[float] = []
    begun, cpu = time.monotonic(), time.thread_time()
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            if not stream.ended:
                selector.register(stream.connection, selectors.EVENT_READ, stream)
        while selector.get_map() and (left := until - time.monotonic_ns()) > 0:
            ready = selector.select(left / 1e9)
            woken = time.monotonic_ns()
            for key, _ in ready:
                stream = key.data
                data = stream.connection.recv(_READ_BYTES)
                now = time.monotonic_ns()
                queued.append((now - woken) / 1e6)
                stream.feed(data, now)
                if stream.ended or (stop_on_rewind and stream.rewound_at):
                    selector.unregister(stream.connection)
    return Work((time.thread_time() - cpu) / (time.monotonic() - begun), queued)


def measured(window: Callable[[], _T | None]) -> _T:
    """What the first window found in which any token came: one that a busy machine slept through
    measured nothing. Raises RuntimeError after five of these.
    """
    for _ in range(_WINDOWS):
        found = window()
        if found is not None:
            return found
    raise RuntimeError("no token came inside the window")


def close(streams: Iterable[Stream]) -> None:
    """Close the connections."""
    for stream in streams:
        stream.connection.close()


def warm_up(port: int) -> str:
    """Run a short turn, so that no figure pays for imports and connections; return its id."""
    turn_id = new_turn_id()
    stream = Stream.open(port, turn_id, "tokens=20 rate=200")
    read([stream], until=time.monotonic_ns() + int(WARM_UP_SECONDS * 1e9))
    close([stream])
    if not stream.ended:
        raise RuntimeError(f"a turn of 20 tokens did not end within {WARM_UP_SECONDS:g} s")
    return turn_id


@dataclass(frozen=True)
class Download:
    """A whole turn, read at once."""

    seconds: float
    """From the request to the terminal event."""
    events: int
    size: int
    """Bytes of the answer, its head included."""


def download(port: int, turn_id: str) -> Download:
    """Resume a finished turn from its start and read it to its end."""
    pieces: list[bytes] = []
    tail = b""
    begun = time.monotonic()
    with connect(port, turn_id, None) as connection:
        while _DONE not in tail:
            data = connection.recv(_READ_BYTES)
            if not data:
                raise RuntimeError(f"ended too early: {tail.decode(errors='replace')}")
            pieces.append(data)
            tail = (tail + data)[-_TAIL_BYTES:]
    seconds = time.monotonic() - begun
    answer = b"".join(pieces)
    return Download(seconds, answer.count(b"\nevent: "), len(answer))
