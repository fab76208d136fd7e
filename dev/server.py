"""HTTP servers on this machine, for development and tests."""

from __future__ import annotations

from http.server import ThreadingHTTPServer


class LocalServer(ThreadingHTTPServer):
    """A server with a thread for each connection; none of them holds up the end of the program."""

    daemon_threads = True
    request_queue_size = 128
    """Callers that may come at once: the default, 5, resets the connections of the others."""
