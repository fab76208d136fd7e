"""A client whose host vanishes: no FIN, no RST."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack

import pytest
from flask import Request

from functions.endpoints import peer
from tests.conftest import Serve
from tests.support.client import headers, new_turn_id, start
from tests.support.network import FarHost, Unavailable
from tests.support.patience import wait_until


def test_a_slot_comes_free_when_the_clients_host_vanishes(serve: Serve) -> None:
    """Nothing says that the client is gone but that it acknowledges nothing any more."""
    with ExitStack() as stack:
        try:
            far = stack.enter_context(FarHost())
        except Unavailable as reason:
            pytest.skip(f"no network namespace can be had: {reason}")
        # Of three threads two are for short calls: one stream at a time.
        server = serve("start_turn", HOST="0.0.0.0", THREADS="3", HEARTBEAT_SECONDS="0.5")
        turn_id = new_turn_id()
        given = headers(turn_id, Content_Type="application/json")
        script = json.dumps([["say", "hello"], ["sleep", 100]])
        client = stack.enter_context(far.run(
            "curl", "-sN", f"http://{far.near}:{server.port}/",
            *(word for name, value in given.items() for word in ("-H", f"{name}: {value}")),
            "-d", json.dumps({"prompt": script}),
        ))  # fmt: skip
        stack.callback(client.kill)
        assert client.stdout is not None
        while b"hello" not in client.stdout.readline():
            assert client.poll() is None
        with start(server, new_turn_id(), [["say", "no"]]) as refused:
            assert refused.status == 503

        far.pull_the_cable()

        def admitted() -> bool:
            with start(server, new_turn_id(), [["say", "yes"]]) as stream:
                return stream.status == 200

        wait_until(admitted)
        assert client.poll() is None


def test_a_socket_that_is_not_tcp_is_served_all_the_same() -> None:
    """Nothing can be asked of it: all the pieces, and no error that would keep the slot."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        request = Request({"gunicorn.socket": ours})
        pieces = peer.until_vanished(request, iter([b"a", b"b"]), silence_seconds=1)
        assert list(pieces) == [b"a", b"b"]
