"""What one stream was like, in two log lines, for metrics (docs/metrics.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from functions import logs
from functions.turns.stream import Stream
from functions.wire import sse


class Meter:
    """Measures a stream from the moment its request arrived. Seconds, of the monotonic clock."""

    def __init__(self, open_streams: Callable[[], int]) -> None:
        self._open_streams = open_streams
        self.began = time.monotonic()
        self._first_byte: float | None = None
        self._first_event: float | None = None
        self._bytes = 0

    def pieces(self, stream: Stream) -> Iterator[bytes]:
        """The pieces of the stream; a line when the first one leaves."""
        for piece in stream:
            if self._first_byte is None:
                self._first_byte = self._since()
                logs.info(
                    "stream opened",
                    firstByteSeconds=self._first_byte,
                    openStreams=self._open_streams(),
                )
            if self._first_event is None and piece != sse.PING:
                self._first_event = self._since()
            self._bytes += len(piece)
            yield piece

    def ended(self, stream: Stream) -> None:
        """Write the line of a stream that has ended, for whatever reason."""
        first = {} if self._first_event is None else {"firstEventSeconds": self._first_event}
        logs.info(
            "stream ended",
            streamSeconds=self._since(),
            bytes=self._bytes,
            openStreams=self._open_streams(),
            **first,
            **stream.lag.fields("lag"),
        )

    def _since(self) -> float:
        return round(time.monotonic() - self.began, 4)
