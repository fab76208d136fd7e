"""A server whose connections do what a test says, byte by byte."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.support.patience import PATIENCE_SECONDS

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PING = b":keep-alive\n\n"


def frame(n: int, event: str = "token", data: str = '"x"') -> bytes:
    """Return a frame as the product writes it."""
    return f"id: {n}\nevent: {event}\ndata: {data}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """Return the data as one chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Peer(socketserver.StreamRequestHandler):
    """The server's end of one connection, as a test's script sees it."""

    timeout = PATIENCE_SECONDS
    server: Server

    def handle(self) -> None:
        """Read the request's head and run the script, unless the client leaves before."""
        self.head = b""
        with suppress(ConnectionError):
            while (line := self.rfile.readline()) != b"\r\n":
                if not line:
                    return
                self.head += line
            self.server.script(self)

    def send(self, data: bytes) -> None:
        """Send the bytes now."""
        self.connection.sendall(data)

    def ended_by(self) -> str:
        """Wait for the client's end, and say how it came."""
        try:
            return "fin" if self.connection.recv(1) == b"" else "data"
        except ConnectionError:
            return "rst"


class Server(socketserver.ThreadingTCPServer):
    """A server that does to each connection what the test's script says."""

    allow_reuse_address = True
    request_queue_size = 128
    script: Callable[[Peer], None]


@contextmanager
def serving(script: Callable[[Peer], None]) -> Iterator[str]:
    """Serve the script on a free port; yields its URL."""
    with Server(("127.0.0.1", 0), Peer) as server:
        server.script = script
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def stream_of(*writes: bytes) -> Callable[[Peer], None]:
    """Return a script that sends a whole event stream, one chunk for each write."""

    def script(peer: Peer) -> None:
        peer.send(HEAD + b"".join(map(chunk, writes)) + chunk(b""))
        peer.ended_by()

    return script
