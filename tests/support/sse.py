"""A strict reader of our streams that keeps every byte with the moment of its arrival.

It follows no protocol but HTTP: it neither resumes nor forgives. Anything in a stream that is not
exactly a ping or exactly a frame of ours is an AssertionError.

    with RawStream(url, "POST", {"X-Stream-Turn-Id": turn_id}, b'{"prompt": "hi"}') as stream:
        assert stream.status == 200
        stream.read_until("done")
        assert [event.id for event in stream.events()] == [1, 2, 3]
"""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self
from urllib.parse import urlsplit

import h11

from .patience import PATIENCE_SECONDS
from .tcp_proxy import How, close_socket

Headers = Mapping[str, str | bytes] | Sequence[tuple[str, str | bytes]]
Ending = Literal["complete", "cut", "reset", "garbled"]
"""The answer's declared end; the connection's, before it; a reset; bytes that are not HTTP."""
_FRAME = re.compile(rb"id: (0|[1-9][0-9]*)\nevent: ([a-z_]+)\ndata: ([^\r\n]+)")
_READ_BYTES = 65_536


@dataclass(frozen=True)
class Frame:
    """An event: `raw` without its blank line, `arrived` when the last byte of it came."""

    id: int
    event: str
    data: Any
    raw: bytes
    arrived: float


@dataclass(frozen=True)
class Ping:
    """A keep-alive comment."""

    arrived: float


def parse_frame(raw: bytes, arrived: float = 0) -> Frame | Ping:
    """Parse what stood before a blank line; AssertionError unless it is exactly one of ours."""
    if raw == b":keep-alive":
        return Ping(arrived)
    match = _FRAME.fullmatch(raw)
    if match is None:
        raise AssertionError(f"neither a ping nor a frame: {raw!r}")
    try:
        data = json.loads(match[3].decode(), parse_constant=_refuse_constant)
    except ValueError as error:
        raise AssertionError(f"data is not JSON ({error}): {raw!r}") from error
    return Frame(int(match[1]), match[2].decode(), data, raw, arrived)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class RawStream:
    """One HTTP/1.1 request and its answer, read by a thread as it comes. A context manager.

    Header values go out as they are, bytes or latin-1, valid or not. Times are `time.monotonic()`;
    `sent` is when the kernel had the whole request.
    """

    def __init__(
        self,
        url: str,
        method: str = "GET",
        headers: Headers = (),
        body: bytes | None = None,
        *,
        timeout: float = PATIENCE_SECONDS,
    ) -> None:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._changed = threading.Condition()
        self._raw = bytearray()
        self._body = bytearray()
        self._arrivals: list[tuple[float, bytes]] = []
        self._chunk = bytearray()
        self._chunks: list[bytes] = []
        self._head: h11.Response | None = None
        self._frames: list[Frame | Ping] = []
        self._unparsed = 0
        self._seen: Counter[str] = Counter()
        self._broken: str | None = None
        self._ending: Ending | None = None
        self._ended = 0.0
        self._http = h11.Connection(h11.CLIENT)
        # h11 only reads here: it would refuse to write what a hostile client may write.
        self._http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._http.send(h11.EndOfMessage())
        address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._socket = socket.create_connection(address, timeout)
        self._stop, self._stopped = socket.socketpair()
        self._reader = threading.Thread(target=self._read, name="raw-stream", daemon=True)
        with contextlib.suppress(ConnectionError):  # refused half-way: the answer says why
            self._socket.sendall(_request(parts.netloc, method, target, headers, body))
        self.sent = time.monotonic()
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close at once (FIN). What arrived stays readable. Harmless twice."""
        self._close("fin")

    def abort(self) -> None:
        """Close at once with an RST, as a client that crashes does."""
        self._close("rst")

    @property
    def status(self) -> int:
        """The answer's status, once it has come; TimeoutError if that takes too long."""
        return self._wait_head().status_code

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers by their lower-case names, repeated ones joined by commas."""
        joined: dict[str, str] = {}
        for name, value in self._wait_head().headers:
            key = name.decode()
            joined[key] = f"{joined[key]}, {value.decode()}" if key in joined else value.decode()
        return joined

    @property
    def raw(self) -> bytes:
        """Every byte so far as it was on the wire, head and chunk sizes included."""
        with self._changed:
            return bytes(self._raw)

    @property
    def body(self) -> bytes:
        """The body so far, without its transfer encoding."""
        with self._changed:
            return bytes(self._body)

    @property
    def rest(self) -> bytes:
        """The body after its last whole frame: empty unless the stream was cut inside one."""
        with self._changed:
            return bytes(self._body[self._unparsed :])

    @property
    def arrivals(self) -> list[tuple[float, bytes]]:
        """When which bytes of the body came, one entry for each read."""
        with self._changed:
            return list(self._arrivals)

    @property
    def chunks(self) -> list[bytes]:
        """The whole chunks of a chunked body: what the server wrote in one go."""
        with self._changed:
            return list(self._chunks)

    @property
    def ending(self) -> Ending | None:
        """How the answer ended; None while it goes on, and for good if we closed first."""
        with self._changed:
            return self._ending

    @property
    def pings(self) -> int:
        """How many have come so far."""
        with self._changed:
            return self._seen["ping"]

    def frames(self) -> list[Frame | Ping]:
        """Return the whole frames and pings so far; AssertionError if anything else came."""
        with self._changed:
            if self._head is not None and not self._is_stream():
                raise AssertionError(f"not an event stream: {self._tail()}")
            if self._broken is not None:
                raise AssertionError(self._broken)
            return list(self._frames)

    def events(self) -> list[Frame]:
        """Return the whole frames so far, as `frames` does, without the pings."""
        return [frame for frame in self.frames() if isinstance(frame, Frame)]

    def read_until(
        self,
        until: int | str | Callable[[list[Frame | Ping]], bool],
        *,
        timeout: float = PATIENCE_SECONDS,
    ) -> list[Frame | Ping]:
        """Return the frames and pings once there are this many events, or one of this type.

        The type "ping" is a ping; a predicate gets all frames and pings so far. AssertionError if
        the answer ends first or something else than a frame came, TimeoutError if it takes longer.
        """

        def reached() -> bool:
            if isinstance(until, int):
                return self._seen.total() - self._seen["ping"] >= until
            if isinstance(until, str):
                return self._seen[until] > 0
            return until(self.frames())

        def done() -> bool:
            return reached() or self._broken is not None or self._ending is not None

        with self._changed:
            self._wait(done, f"for {until}", timeout)
            frames = self.frames()
            if not reached():
                raise AssertionError(f"ended ({self._ending}) before {until}: {self._tail()}")
            return frames

    def read_to_end(self, *, timeout: float = PATIENCE_SECONDS) -> Ending:
        """Return how the answer ended, once it has; TimeoutError if it takes longer."""
        with self._changed:
            self._wait(lambda: self._ending is not None, "for the end", timeout)
            return self._ending or "cut"

    def _wait_head(self) -> h11.Response:
        with self._changed:
            self._wait(lambda: bool(self._head or self._ending), "for an answer", PATIENCE_SECONDS)
            if self._head is None:
                raise AssertionError(f"ended ({self._ending}) without an answer: {self._tail()}")
            return self._head

    def _wait(self, done: Callable[[], bool], what: str, timeout: float) -> None:
        if not self._changed.wait_for(done, timeout):
            raise TimeoutError(f"waited {timeout} s {what}: {self._tail()}")

    def _tail(self) -> str:
        return f"{len(self._raw)} bytes, the last of them {bytes(self._raw[-300:])!r}"

    def _close(self, how: How) -> None:
        if self._socket.fileno() == -1:
            return
        self._stop.send(b"x")
        self._reader.join()
        for sock in (self._stop, self._stopped):
            sock.close()
        close_socket(self._socket, how)

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while self._ending is None:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._stopped in ready:
                    return
                try:
                    data = self._socket.recv(_READ_BYTES)
                except OSError:
                    self._take(None)
                else:
                    self._take(data)

    def _take(self, data: bytes | None) -> None:
        now = time.monotonic()
        with self._changed:
            if data is None:
                self._ending = "reset"
            else:
                self._raw += data
                body_before = len(self._body)
                self._ending = self._decode(data)
                if body := bytes(self._body[body_before:]):
                    self._arrivals.append((now, body))
                self._parse(now)
            if self._ending is not None:
                self._ended = now
            self._changed.notify_all()

    def _decode(self, data: bytes) -> Ending | None:
        try:
            self._http.receive_data(data)
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    self._head = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    self._chunk += event.data
                    if event.chunk_end:
                        self._chunks.append(bytes(self._chunk))
                        self._chunk.clear()
                elif isinstance(event, h11.EndOfMessage):
                    return "complete"
                elif isinstance(event, h11.ConnectionClosed):
                    return "cut"
                elif event is h11.NEED_DATA:
                    return None
        except h11.RemoteProtocolError:
            return "garbled" if data else "cut"

    def _parse(self, now: float) -> None:
        if self._head is None or not self._is_stream():
            return
        while self._broken is None:
            end = self._body.find(b"\n\n", self._unparsed)
            if end < 0:
                return
            try:
                frame = parse_frame(bytes(self._body[self._unparsed : end]), now)
            except AssertionError as error:
                self._broken = str(error)
                return
            self._unparsed = end + 2
            self._frames.append(frame)
            self._seen[frame.event if isinstance(frame, Frame) else "ping"] += 1

    def _is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")


def _request(host: str, method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    given = {name.lower() for name, _ in pairs}
    defaults = {"Host": host, "Accept": "text/event-stream"}
    if body is not None:
        defaults["Content-Length"] = str(len(body))
    pairs = [(name, value) for name, value in defaults.items() if name.lower() not in given] + pairs
    lines = [f"{method} {target} HTTP/1.1".encode()]
    for name, value in pairs:
        raw = value.encode("latin-1") if isinstance(value, str) else value
        lines.append(name.encode() + b": " + raw)
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")
