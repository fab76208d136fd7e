"""The reader of event streams keeps exactly what came: from real sockets."""

from __future__ import annotations

import threading
from functools import partial
from queue import Queue

import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.peer import HEAD, PING, Peer, chunk, frame, serving, stream_of
from tests.support.sse import Frame, Headers, RawStream, parse_frame
from tests.support.tcp_proxy import How


class TestRawStream:
    """What came is kept exactly, and what should not have come is an AssertionError."""

    def test_every_byte_is_kept_with_its_time(self) -> None:
        """However the bytes come, here one at a time, the frames and chunks are those sent."""
        writes = [PING, frame(1), frame(2, "tool_end", '{"step": 0}') + PING, frame(9, "done")]
        wire = HEAD + b"".join(map(chunk, writes)) + chunk(b"")

        opened = threading.Event()

        def came(count: int, _: object) -> bool:
            return len(stream.raw) >= count

        def script(peer: Peer) -> None:
            opened.wait(PATIENCE_SECONDS)
            for n in range(len(wire)):
                peer.send(wire[n : n + 1])
                stream.read_until(partial(came, n + 1))

        with serving(script) as url, RawStream(url) as stream:
            opened.set()
            assert stream.read_to_end() == "complete"
            assert stream.status == 200
            assert stream.headers["content-type"] == "text/event-stream"
            assert stream.raw == wire
            assert stream.body == b"".join(data for _, data in stream.arrivals) == b"".join(writes)
            assert stream.chunks == writes
            assert [(event.id, event.event, event.data) for event in stream.events()] == [
                (1, "token", "x"),
                (2, "tool_end", {"step": 0}),
                (9, "done", "x"),
            ]
            assert len(stream.frames()) == 5
            times = [stream.sent, *(at for at, _ in stream.arrivals)]
            assert times == sorted(times)
            assert stream.events()[-1].arrived == times[-1]

    def test_the_request_goes_out_as_given(self) -> None:
        """Method, query, body and even illegal header bytes reach the server untouched."""
        heads: Queue[bytes] = Queue()

        def script(peer: Peer) -> None:
            heads.put(peer.head + peer.rfile.read(4))
            peer.send(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nVary: a\r\nVary: b\r\n\r\n{}"
            )

        headers: Headers = [("Last-Event-ID", b"\xb2"), ("X-Twice", " 7 "), ("X-Twice", "8")]
        with serving(script) as url, RawStream(f"{url}/a?b=c", "POST", headers, b"body") as stream:
            assert stream.read_to_end() == "complete"
            assert (stream.status, stream.body, stream.headers["vary"]) == (400, b"{}", "a, b")
            with pytest.raises(AssertionError, match="not an event stream"):
                stream.frames()
        host = url.removeprefix("http://").encode()
        assert heads.get(timeout=PATIENCE_SECONDS) == (
            b"POST /a?b=c HTTP/1.1\r\nHost: " + host + b"\r\nAccept: text/event-stream\r\n"
            b"Content-Length: 4\r\nLast-Event-ID: \xb2\r\nX-Twice:  7 \r\nX-Twice: 8\r\nbody"
        )

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b":keep-alive ",
            b": keep-alive",
            b"data: 1",
            b"id: 1\ndata: 1",
            b"id: 1\nevent: token\ndata: 1\n",
            b"id: 01\nevent: token\ndata: 1",
            b"id: -1\nevent: token\ndata: 1",
            b"id: 1\nevent: \ndata: 1",
            b"id: 1\nevent: Token\ndata: 1",
            b"event: token\nid: 1\ndata: 1",
            b"id: 1\nevent: token\ndata:1",
            b"id: 1\r\nevent: token\r\ndata: 1",
            b"id: 1\nevent: token\ndata: 1\ndata: 2",
            b"id: 1\nevent: token\ndata: 1\nretry: 5",
            b"id: 1\nevent: token\ndata: 1\n:keep-alive",
            b"id: 1\nevent: token\ndata: {",
            b"id: 1\nevent: token\ndata: NaN",
            b"id: 1\nevent: token\ndata: [-Infinity]",
            b'id: 1\nevent: token\ndata: "\xff"',
        ],
    )
    def test_only_our_frames_are_frames(self, raw: bytes) -> None:
        """Anything but a ping and the three lines in their order is refused."""
        with pytest.raises(AssertionError):
            parse_frame(raw)

    def test_blank_lines_are_the_only_separator(self) -> None:
        """Characters that other readers split at are inside the string they belong to."""
        data = '"a\u2028b\u2029c\u0085d\x7f"'
        parsed = parse_frame(f"id: 1\nevent: token\ndata: {data}".encode())
        assert isinstance(parsed, Frame)
        assert parsed.data == data[1:-1]

    def test_a_broken_frame_ends_the_waiting(self) -> None:
        """A reader that waits for more is told at once what came instead."""
        with (
            serving(stream_of(frame(1), b"data: forged\n\n", frame(2))) as url,
            RawStream(url) as stream,
            pytest.raises(AssertionError, match="forged"),
        ):
            stream.read_until(2)

    def test_read_until_says_how_it_ended(self) -> None:
        """An end that comes first is an AssertionError; half a frame is in `rest`."""
        whole, half = frame(1), frame(2)[:9]

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(whole) + chunk(half))

        with serving(script) as url, RawStream(url) as stream:
            assert stream.read_until(lambda frames: len(frames) == 1) == stream.events()
            with pytest.raises(AssertionError, match=r"ended \(cut\) before done"):
                stream.read_until("done")
            assert stream.ending == "cut"
            assert stream.rest == half

    def test_bytes_that_are_not_http_are_told_apart(self) -> None:
        """A chunk size that is none is neither a cut nor an end."""
        with (
            serving(lambda peer: peer.send(HEAD + b"zz\r\n")) as url,
            RawStream(url) as stream,
        ):
            assert stream.read_to_end() == "garbled"

    @pytest.mark.parametrize("how", ["fin", "rst"])
    def test_the_server_sees_how_the_client_left(self, how: How) -> None:
        """`close` is a FIN, `abort` an RST; what came stays readable."""
        ends: Queue[str] = Queue()

        def script(peer: Peer) -> None:
            peer.send(HEAD + chunk(PING))
            ends.put(peer.ended_by())

        with serving(script) as url, RawStream(url) as stream:
            stream.read_until("ping")
            (stream.close if how == "fin" else stream.abort)()
            assert ends.get(timeout=PATIENCE_SECONDS) == how
            assert (stream.body, stream.ending) == (PING, None)
