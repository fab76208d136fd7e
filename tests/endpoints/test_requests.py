"""Bad requests: a clear error with a code, the right status, CORS; nothing is used up."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from dev import token
from tests.conftest import Serve
from tests.support.client import app_check, error_of, headers, new_turn_id, resume, start
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

pytestmark = pytest.mark.emulator

ORIGIN = "http://127.0.0.1:5000"
JSON = {"Content-Type": "application/json", "Origin": ORIGIN}
PROMPT = json.dumps({"prompt": "[]"}).encode()
TURN_ID = "0" * 20


@pytest.fixture(scope="module")
def module_serve(firestore_emulator: str) -> Iterator[Serve]:
    """One process of each function for all of these tests: none of them may harm it."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start_one(target: str, **environ: str) -> FunctionServer:
            server = FunctionServer(target, firestore_emulator, "demo-agent-turns", environ)
            return stack.enter_context(server)

        yield start_one


@pytest.fixture(scope="module")
def starter(module_serve: Serve) -> FunctionServer:
    """A process of `start_turn`."""
    return module_serve("start_turn")


@pytest.fixture(scope="module")
def resumer(module_serve: Serve) -> FunctionServer:
    """A process of `resume_turn`."""
    return module_serve("resume_turn")


def refused(
    server: FunctionServer,
    method: str,
    given: dict[str, str | bytes],
    body: bytes | None,
    *,
    expect: tuple[int, str],
) -> None:
    """The request is refused with this status and code, readable by a page."""
    with RawStream(server.url, method, given, body) as stream:
        assert (stream.status, error_of(stream)["code"]) == expect
        assert stream.headers["access-control-allow-origin"] == ORIGIN
        assert "retry-after" in stream.headers["access-control-expose-headers"].lower()


@pytest.mark.parametrize(
    "turn_id",
    ["", "short", "a/b" + "0" * 20, "..", "__x__", "0" * 65, "0" * 19, "é" * 20, "x" * 6000],
)
def test_a_bad_turn_id_is_400(
    starter: FunctionServer, resumer: FunctionServer, turn_id: str
) -> None:
    """Before any call to Firestore, and before the App Check token is looked at."""
    refused(
        starter, "POST", {**JSON, "X-Stream-Turn-Id": turn_id}, PROMPT, expect=(400, "bad_turn_id")
    )
    refused(
        resumer,
        "GET",
        {"Origin": ORIGIN, "X-Stream-Turn-Id": turn_id},
        None,
        expect=(400, "bad_turn_id"),
    )


@pytest.mark.parametrize(
    "cursor",
    [
        "abc",
        "-1",
        "1_000",
        "5,9",
        "9" * 5000,
        "9" * 9_000,
        "9" * 65_000,
        "\xb2",
        "07",
        "1e3",
        "9007199254740993",
        "0x1",
        "1 2",
    ],
)
def test_a_bad_cursor_is_400(starter: FunctionServer, resumer: FunctionServer, cursor: str) -> None:
    """Never a 500, and never taken for a start from the beginning."""
    given: dict[str, str | bytes] = {"X-Stream-Turn-Id": TURN_ID, "Last-Event-ID": cursor}
    refused(starter, "POST", {**JSON, **given}, PROMPT, expect=(400, "bad_cursor"))
    refused(resumer, "GET", {"Origin": ORIGIN, **given}, None, expect=(400, "bad_cursor"))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad_body"),
        (b"{", 400, "bad_body"),
        (b"[]", 400, "bad_body"),
        (b'"x"', 400, "bad_body"),
        (b"null", 400, "bad_body"),
        (b"{}", 400, "bad_body"),
        (b'{"prompt":1}', 400, "bad_body"),
        (b'{"prompt":""}', 400, "bad_body"),
        (b'{"prompt":"  "}', 400, "bad_body"),
        (b'{"prompt":null}', 400, "bad_body"),
        (b'{"prompt":"x","sessionId":7}', 400, "bad_body"),
        (b'{"prompt":"x","sessionId":null}', 400, "bad_body"),
        (b'{"prompt":"x","sessionId":"a/b"}', 400, "bad_body"),
        (b'{"prompt":"x","extra":1}', 400, "bad_body"),
        (b'{"prompt":"\\ud800"}', 400, "bad_body"),
        (b'{"prompt":"\xff"}', 400, "bad_body"),
        (b"\xef\xbb\xbf{}", 400, "bad_body"),
        ('{"prompt":"x"}'.encode("utf-16"), 400, "bad_body"),
        (b"[" * 100_000, 400, "bad_body"),
        (b'{"prompt":' + b"9" * 5000 + b"}", 400, "bad_body"),
        (b'{"prompt":NaN}', 400, "bad_body"),
        (json.dumps({"prompt": "x" * 50_001}).encode(), 413, "body_too_large"),
        (b'{"prompt":"' + b"x" * 300_000 + b'"}', 413, "body_too_large"),
    ],
)
def test_a_bad_body_is_refused(
    starter: FunctionServer, body: bytes, status: int, code: str
) -> None:
    """With a code that says what to change."""
    given: dict[str, str | bytes] = {**JSON, "X-Stream-Turn-Id": TURN_ID}
    refused(starter, "POST", given, body, expect=(status, code))


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_declared_as_json_is_415(starter: FunctionServer, kind: str) -> None:
    """A form of another site could post it otherwise."""
    given: dict[str, str | bytes] = {
        "Origin": ORIGIN,
        "Content-Type": kind,
        "X-Stream-Turn-Id": TURN_ID,
    }
    refused(starter, "POST", given, PROMPT, expect=(415, "unsupported_media_type"))


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "TRACE", "BREW"])
def test_another_method_is_405(starter: FunctionServer, method: str) -> None:
    """`Allow` says which it takes."""
    with RawStream(starter.url, method, {"Origin": ORIGIN}) as stream:
        assert stream.status == 405
        assert error_of(stream)["code"] == "method_not_allowed"
        assert stream.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize("path", ["x", "start_turn", "__/", "%2e%2e/x", "?x=1#"])
def test_another_path_is_404(starter: FunctionServer, path: str) -> None:
    """As JSON; a query string is no path."""
    with RawStream(starter.url + path, "POST", {**JSON}, b"{}") as stream:
        expected = (400, "bad_turn_id") if path.startswith("?") else (404, "unknown_path")
        assert (stream.status, error_of(stream)["code"]) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "garbage",
        "a.b.",
        "..",
        "e30.e30.",
        "x" * 65_000,
        app_check(project="demo-other"),
        app_check(ttl=-120),
        app_check(app=""),
        app_check(app="\ud800"),
        app_check(app="x" * 300),
        token.encode({"aud": ["projects/demo-agent-turns"]}),
        app_check() + "signature",
        "0b1f7c3e-5a52-4a6f-9a51-0d7f1a2b3c4d",
    ],
)
def test_a_token_that_is_not_genuine_is_401(resumer: FunctionServer, value: str) -> None:
    """Missing, malformed, expired, of another project, without its claims."""
    given: dict[str, str | bytes] = {"Origin": ORIGIN, "X-Stream-Turn-Id": TURN_ID}
    given["X-Firebase-AppCheck"] = value
    refused(resumer, "GET", given, None, expect=(401, "app_check_failed"))


def test_a_token_is_good_for_one_call(starter: FunctionServer, resumer: FunctionServer) -> None:
    """Over all processes; a refused request before it used up nothing."""
    used: dict[str, str | bytes] = {**JSON, **headers(new_turn_id())}
    with RawStream(starter.url, "POST", {**used, "Last-Event-ID": "x"}, PROMPT) as stream:
        assert stream.status == 400
    with RawStream(starter.url, "POST", used, PROMPT) as stream:
        assert stream.status == 200
    refused(resumer, "GET", {"Origin": ORIGIN, **used}, None, expect=(401, "app_check_failed"))


def test_another_app_sees_no_turn_of_ours(starter: FunctionServer, resumer: FunctionServer) -> None:
    """The answer of an unknown turn; starting under the id makes a turn of its own."""
    turn_id = new_turn_id()
    with start(starter, turn_id, [["say", "ours"]]) as stream:
        stream.read_to_end()
    other = {**headers(turn_id), "X-Firebase-AppCheck": app_check("1:2:web:other")}
    with RawStream(resumer.url, "GET", other) as stream:
        assert (stream.status, error_of(stream)["code"]) == (404, "unknown_turn")
    other["X-Firebase-AppCheck"] = app_check("1:2:web:other")
    body = json.dumps({"prompt": json.dumps([["say", "theirs"]])}).encode()
    with RawStream(starter.url, "POST", {**other, **JSON}, body) as stream:
        stream.read_to_end()
        assert b"theirs" in stream.body
    with resume(resumer, turn_id) as stream:
        stream.read_to_end()
        assert b"ours" in stream.body


def test_preflight_allows_our_headers_to_our_origins_only(starter: FunctionServer) -> None:
    """Cached by the browser; another origin learns nothing."""
    asked = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-firebase-appcheck,x-stream-turn-id",
    }
    with RawStream(starter.url, "OPTIONS", asked) as stream:
        assert stream.status == 204
        allowed = stream.headers["access-control-allow-headers"].lower()
        for name in ("x-firebase-appcheck", "x-stream-turn-id", "last-event-id", "authorization"):
            assert name in allowed
        assert int(stream.headers["access-control-max-age"]) > 0
        assert stream.headers["access-control-allow-methods"] == "POST"
    for origin in ("https://evil.example", "null", "http://127.0.0.1:5000.evil.example"):
        with RawStream(starter.url, "OPTIONS", {**asked, "Origin": origin}) as stream:
            assert not [name for name in stream.headers if name.startswith("access-control")]


def test_a_chunked_body_without_a_length_is_read_and_bounded(starter: FunctionServer) -> None:
    """20 KB are taken; too much is 413 all the same."""
    for size, status in ((20_000, 200), (300_000, 413)):
        text = json.dumps({"prompt": json.dumps([["say", "x" * size]])}).encode()
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
        given = {**headers(new_turn_id()), **JSON, "Transfer-Encoding": "chunked"}
        pairs = [*given.items()]
        with RawStream(starter.url, "POST", pairs, None) as stream:
            stream._socket.sendall(body)
            assert stream.status == status


@pytest.mark.parametrize("body", [b"50\r\n{", b"zz\r\n{}", b"-1\r\n", b""])
def test_a_chunked_body_that_is_cut_off_or_malformed_is_400(
    starter: FunctionServer, body: bytes
) -> None:
    """The HTTP server's own errors while it is read are the client's fault, and no bug of ours."""
    pairs = [*{**headers(new_turn_id()), **JSON, "Transfer-Encoding": "chunked"}.items()]
    with RawStream(starter.url, "POST", pairs, None) as stream:
        stream._socket.sendall(body)
        stream._socket.shutdown(socket.SHUT_WR)
        assert (stream.status, error_of(stream)["code"]) == (400, "bad_body")


def test_health_is_answered_without_a_token(resumer: FunctionServer) -> None:
    """The Functions emulator asks each process for it."""
    with RawStream(resumer.url + "__/health", "GET") as stream:
        assert stream.status == 200
        stream.read_to_end()
        assert json.loads(stream.body) == {"status": "ok"}
