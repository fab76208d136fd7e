"""A local server that speaks the Gemini API's streaming format; what it answers is scripted.

    with Gemini(lambda asked: says("Hello")) as server: …  # GOOGLE_GEMINI_BASE_URL=server.url

`google-genai`, the real client, sends it what it would send to Google.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from dev.server import LocalServer

USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}


@dataclass(frozen=True)
class Reply:
    """An HTTP answer: a status, and its body as the stream's chunks, or as one JSON value."""

    chunks: Sequence[Mapping[str, Any]] = ()
    status: int = 200
    error: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """Whether the connection breaks after the chunks, in the midst of the response."""
    seconds: float = 0.0
    """Before each chunk."""


def part(text: str) -> dict[str, Any]:
    """Text in a response."""
    return {"text": text}


def call(name: str, **args: Any) -> dict[str, Any]:
    """A tool call in a response."""
    return {"functionCall": {"name": name, "args": args}}


def says(*parts: str | Mapping[str, Any], finish: str = "STOP", **how: Any) -> Reply:
    """A response of so many chunks, each with one part; the last one says why it ended."""
    parts_ = [part(item) if isinstance(item, str) else dict(item) for item in parts]
    chunks = [chunk([item]) for item in parts_[:-1]]
    return Reply([*chunks, chunk(parts_[-1:], finishReason=finish)], **how)


def chunk(parts: Sequence[Mapping[str, Any]], **candidate: Any) -> dict[str, Any]:
    """One piece of a stream."""
    content = {"role": "model", "parts": list(parts)} if parts else {"role": "model"}
    return {
        "candidates": [{"content": content, "index": 0, **candidate}],
        "usageMetadata": USAGE,
        "modelVersion": "fake",
        "responseId": "r",
    }


def cut_off(*parts: str | Mapping[str, Any], **how: Any) -> Reply:
    """A response whose connection breaks after `parts`."""
    whole = says(*parts, "never sent", **how)
    return Reply(whole.chunks[:-1], cut=True, seconds=whole.seconds)


def refuses(
    status: int, name: str, message: str = "", *details: Mapping[str, Any], **headers: str
) -> Reply:
    """An error, as Google words it."""
    error = {"code": status, "message": message or name, "status": name, "details": list(details)}
    return Reply(status=status, error={"error": error}, headers=headers)


@dataclass(frozen=True)
class Asked:
    """A request: its JSON body, and how many came before it."""

    body: dict[str, Any]
    number: int

    @property
    def responses(self) -> int:
        """How many responses of the model the conversation holds."""
        return sum(content["role"] == "model" for content in self.body["contents"])


class Gemini:
    """A context manager; `script` answers each request."""

    def __init__(self, script: Callable[[Asked], Reply] | None = None) -> None:
        self._lock = threading.Lock()
        self._script = script
        self.asked: list[Asked] = []
        self.answered: list[Asked] = []
        """Requests whose whole response was sent."""
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def say(self, *replies: Reply | Callable[[Asked], Reply]) -> None:
        """Answer the requests from now on so, in their order; the last reply is for all others."""

        def script(asked: Asked) -> Reply:
            reply = replies[min(asked.number, len(replies) - 1)]
            return reply if isinstance(reply, Reply) else reply(asked)

        self.asked, self.answered, self._script = [], [], script

    def reply(self, asked: Asked) -> Reply:
        """What a request is answered."""
        assert self._script is not None
        return self._script(asked)

    def take(self, body: dict[str, Any]) -> Asked:
        """Count a request."""
        with self._lock:
            asked = Asked(body, len(self.asked))
            self.asked.append(asked)
            return asked


class _Server(LocalServer):
    def __init__(self, gemini: Gemini) -> None:
        self.gemini = gemini
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert ":streamGenerateContent" in self.path, self.path
        asked = self.server.gemini.take(body)
        try:
            self._answer(asked, self.server.gemini.reply(asked))
        except OSError:
            self.close_connection = True  # the client was killed

    def _answer(self, asked: Asked, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name.replace("_", "-"), value)
        if reply.error:
            data = json.dumps(reply.error).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in reply.chunks:
            time.sleep(reply.seconds)
            self._send(b"data: " + json.dumps(piece).encode() + b"\r\n\r\n")
        if reply.cut:
            self.close_connection = True
            return
        self._send(b"")
        self.server.gemini.answered.append(asked)

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""
