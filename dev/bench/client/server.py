"""Serves the benchmark its page, and turns at any rate: exact frames, no journal behind them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from dev.project import ROOT
from dev.server import LocalServer
from functions.wire import sse
from functions.wire.events import Done, Token

_NUMBER = re.compile(r"(tokens|rate)=([0-9]+)")
_PAGE = b"""<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/style.css">
<body><script type="module" src="/bench.js"></script>"""
_LINE = ("+", "   ", " const", " value", " =", " compute(", "index", ", 42);\n")
_PROSE = ("A", " stream", " of", " tokens", " that", " does", " not", " end", " soon", ".\n")


def tokens(prompt: str) -> Iterator[str]:
    """Yield `tokens=N` tokens: of a diff if the prompt says so, else of prose."""
    count = int(dict(_NUMBER.findall(prompt))["tokens"])
    words = _LINE if "diff" in prompt else _PROSE
    for number in range(count):
        yield words[number % len(words)]


@contextmanager
def serving(assets: Path) -> Iterator[str]:
    """Serve the bundle in a folder, and `/start_turn`; yields the URL."""
    files = {
        "/": ("text/html", _PAGE),
        "/bench.js": ("text/javascript", (assets / "bench.js").read_bytes()),
        "/style.css": ("text/css", (ROOT / "public" / "style.css").read_bytes()),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = files.get(self.path, ("text/plain", b""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            prompt = json.loads(body)["prompt"]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                self._stream(prompt, float(dict(_NUMBER.findall(prompt))["rate"]))
            except OSError:
                self.close_connection = True  # the page has seen enough

        def _stream(self, prompt: str, rate: float) -> None:
            begun = time.monotonic()
            number = 0
            for number, word in enumerate(tokens(prompt), start=1):
                self.wfile.write(sse.encode(number, Token(word)))
                time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            self.wfile.write(sse.encode(number + 1, Done("stop")))

        def log_message(self, _format: str, *args: object) -> None:
            """Say nothing."""

    with LocalServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
