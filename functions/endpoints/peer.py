"""Noticing a client whose host has vanished: no FIN, no RST, just no more acknowledgements.

A client that leaves closes its socket, and the next write says so. A phone that loses its network
says nothing; TCP itself would go on sending for a quarter of an hour, and hold the slot so long.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from flask import Request

STALLED_MS = 120_000
"""A peer that takes nothing for so long is let go, even while it is there: it resumes."""

_UNACKED_OFFSET, _LAST_ACK_OFFSET = 24, 56
"""In `struct tcp_info` of Linux (include/uapi/linux/tcp.h), whose layout only ever grows."""
_INFO_BYTES = _LAST_ACK_OFFSET + 4


def until_vanished(
    request: Request, pieces: Iterator[bytes], *, silence_seconds: float
) -> Iterator[bytes]:
    """The pieces, up to the first one before which the client's host had vanished: something was
    sent to it that it has not acknowledged, and it has acknowledged nothing for `silence_seconds`.

    A slow reader is not cut for it: its host acknowledges, and says that it has no room. Where the
    server's socket cannot be had or asked, all the pieces.
    """
    connection = request.environ.get("gunicorn.socket")
    if not isinstance(connection, socket.socket) or not hasattr(socket, "TCP_INFO"):
        return pieces
    try:
        # Ends a write that blocks because nobody takes what is sent.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
    except OSError:  # not TCP
        return pieces
    return _while_there(connection, pieces, 1000 * silence_seconds)


def _while_there(
    connection: socket.socket, pieces: Iterator[bytes], silence_ms: float
) -> Iterator[bytes]:
    for piece in pieces:
        if _vanished(connection, silence_ms):
            return
        yield piece


def _vanished(connection: socket.socket, silence_ms: float) -> bool:
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:  # closed: the next write says so
        return False
    unacknowledged: int = struct.unpack_from("=I", info, _UNACKED_OFFSET)[0]
    last_ack_ms: int = struct.unpack_from("=I", info, _LAST_ACK_OFFSET)[0]
    return unacknowledged > 0 and last_ack_ms > silence_ms
