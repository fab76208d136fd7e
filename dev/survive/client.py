"""A client that keeps everything: each arrival of bytes, each event, the text they fold to."""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from dev import token
from dev.project import LOCAL_PROJECT
from functions.wire import sse
from functions.wire.fold import Fold

_READ_BYTES = 65_536
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Arrival:
    """Bytes that one read of the socket gave. Times are the monotonic clock's."""

    at: float
    request: int
    """The index of the request whose answer it belongs to."""
    size: int


@dataclass(frozen=True)
class Received:
    """A whole event, or a ping (then there is no frame), and when its last byte arrived."""

    at: float
    request: int
    frame: sse.Frame | None


@dataclass(frozen=True)
class Request:
    """A call: when it was sent, and from which cursor on it asked."""

    at: float
    cursor: int


class RefusedError(RuntimeError):
    """The answer was no stream."""


class Client:
    """Reads one turn, in as many requests as that takes, each on a thread of its own.

    With a `uid` it is signed in as that user, and its turn has a session of the turn's own id.
    """

    def __init__(self, turn_id: str | None = None, *, uid: str | None = None) -> None:
        self.turn_id = turn_id or str(uuid.uuid4())
        self.uid = uid
        self.requests: list[Request] = []
        self.arrivals: list[Arrival] = []
        self.received: list[Received] = []
        self.fold = Fold()
        self.repeated = 0
        """Events that came although the client had them."""
        self.left_over = b""
        """What came of an event before the connection ended inside it."""
        self.connected = False
        self._problem: str | None = None
        self._changed = threading.Condition()

    def start(self, port: int, prompt: str) -> None:
        """POST the prompt; returns when the headers of the answer are there."""
        session = {"sessionId": self.turn_id} if self.uid else {}
        self._open(port, "POST", json.dumps({"prompt": prompt, **session}).encode())

    def resume(self, port: int) -> None:
        """Ask for the turn from the cursor on; returns when the headers of the answer are there."""
        self._open(port, "GET", None)

    def events(self, kind: str) -> list[Received]:
        """Return the events of a type so far, or the pings."""
        with self._changed:
            received = list(self.received)
        return [one for one in received if kind == ("ping" if not one.frame else one.frame.type)]

    def wait(self, what: str, reached: Callable[[], bool], *, seconds: float) -> None:
        """Wait until it is so.

        Raises:
            RuntimeError: it took longer, or the stream held something else than it may.
        """
        with self._changed:
            there = self._changed.wait_for(lambda: reached() or self._problem is not None, seconds)
        if self._problem is not None:
            raise RuntimeError(self._problem)
        if not there:
            raise RuntimeError(f"{what}: not within {seconds:g} s")

    def _open(self, port: int, method: str, body: bytes | None) -> None:
        now = time.time()
        claims = token.claims(LOCAL_PROJECT, token.APP, token.TTL_SECONDS, now)
        headers = {
            "X-Firebase-AppCheck": token.encode(claims),
            "X-Stream-Turn-Id": self.turn_id,
            "Content-Type": "application/json",
            **({"Last-Event-ID": str(self.fold.cursor)} if self.fold.cursor else {}),
        }
        if self.uid:
            user = token.id_claims(LOCAL_PROJECT, self.uid, token.TTL_SECONDS, now)
            headers["Authorization"] = f"Bearer {token.encode(user)}"
        self.left_over = b""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
        connection.connect()
        self.requests.append(Request(time.monotonic(), self.fold.cursor))
        connection.request(method, "/", body, headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise RefusedError(f"refused: {response.status} {response.read()!r}")
        self.connected = True
        threading.Thread(target=self._read, args=(response,), name="client", daemon=True).start()

    def _read(self, response: http.client.HTTPResponse) -> None:
        problem = None
        try:
            while data := response.read1(_READ_BYTES):
                self._take(time.monotonic(), data)
        except (http.client.HTTPException, OSError):
            pass  # the connection ended inside the answer
        except ValueError as error:
            problem = f"not one of our streams: {error}"
        with self._changed:
            self.connected = False
            self._problem = problem
            self._changed.notify_all()

    def _take(self, now: float, data: bytes) -> None:
        with self._changed:
            self.arrivals.append(Arrival(now, len(self.requests) - 1, len(data)))
            *whole, self.left_over = (self.left_over + data).split(b"\n\n")
            for part in whole:
                self._apply(now, part + b"\n\n")
            self._changed.notify_all()

    def _apply(self, now: float, raw: bytes) -> None:
        frame = None if raw == sse.PING else next(sse.decode(raw))
        self.received.append(Received(now, len(self.requests) - 1, frame))
        if frame is not None:
            self.repeated += frame.id <= self.fold.cursor
            self.fold.apply(frame)
