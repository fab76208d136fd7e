"""Requests that mean harm, or are merely wrong: generated from a seed, the same each time.

Most differ from a proper request in one to three places, so that they come far before they are
refused. `SECRET` stands in every token, prompt and header that is made up: it must never be logged.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dev import token
from tests.support.hostile_parts import (
    ALLOWED,
    BODIES,
    BROKEN,
    CURSORS,
    FOREIGN,
    JUNK,
    METHODS,
    MORE,
    ODD,
    SECRET,
    TARGETS,
    TYPES,
    Pairs,
)


@dataclass
class Hostile:
    """One request, to be sent as it stands."""

    function: str
    method: bytes
    target: bytes
    pairs: Pairs
    body: bytes
    ends: bool = True
    """Whether its body is all there; if not, the client stops sending in the middle of it."""
    broken: str = ""
    """Why the HTTP server itself may refuse it, before any code of ours; empty if it must not."""
    origin: bytes | None = None
    turn_ids: list[str] = field(default_factory=list)

    @property
    def raw(self) -> bytes:
        """Its bytes."""
        head = [b"%b %b HTTP/1.1" % (self.method, self.target)]
        head += [name.encode() + b": " + value for name, value in self.pairs]
        return b"\r\n".join(head) + b"\r\n\r\n" + self.body

    def __str__(self) -> str:
        return f"{self.function}: {self.raw[:600]!r} ({len(self.raw)} bytes)"


@dataclass(frozen=True)
class Answer:
    """What came back; `status` 0 if the connection was closed without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


Sign = Callable[[dict[str, Any]], str]
"""Makes a token of claims, as whoever is asked takes it."""


def generate(
    seed: int,
    count: int,
    functions: dict[str, tuple[str, ...]],
    project: str,
    sign: Sign = token.encode,
) -> Iterator[Hostile]:
    """`count` requests to `functions`, each with the methods that it takes."""
    make = _Maker(random.Random(seed), project, sign)
    names = sorted(functions)
    for number in range(count):
        name = names[number % len(names)]
        yield make.request(name, functions[name])


def send(port: int, request: Hostile, *, seconds: float) -> Answer:
    """Send it and read the answer: of a stream its head and first bytes. Raises TimeoutError."""
    until = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port), seconds) as sock:
        sock.settimeout(seconds)
        try:
            sock.sendall(request.raw)
            if not request.ends:
                sock.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # refused half-way: the answer says why
        response = http.client.HTTPResponse(sock, method=request.method.decode("latin-1"))
        try:
            response.begin()
            stream = response.getheader("Content-Type", "").startswith("text/event-stream")
            body = response.read1() if stream else response.read()
        except (ConnectionError, http.client.HTTPException):
            return Answer(0, {}, b"")
        finally:
            response.close()
        if time.monotonic() > until:
            raise TimeoutError
        headers: dict[str, str] = {}
        for name, value in response.getheaders():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        return Answer(response.status, headers, body)


class _Maker:
    """Chooses. Every choice comes from one seeded generator."""

    def __init__(self, choose: random.Random, project: str, sign: Sign) -> None:
        self._choose = choose
        self._project = project
        self._sign = sign
        self._used_token = self._app_check()
        self._turns = [self._uuid() for _ in range(5)]

    def request(self, function: str, methods: tuple[str, ...]) -> Hostile:
        """One request that is proper but for some places."""
        made = Hostile(function, self._choose.choice(methods).encode(), b"/", [], b"")
        turn_id = self._uuid()
        made.turn_ids = [turn_id]
        parts: dict[str, Pairs] = {
            "origin": [("Origin", ALLOWED.encode())],
            "turn": [("X-Stream-Turn-Id", turn_id.encode())],
            "cursor": [],
            "app check": [("X-Firebase-AppCheck", self._app_check().encode())],
            "auth": [("Authorization", b"Bearer " + self._id_token().encode())],
            "type": [("Content-Type", b"application/json")],
            "more": [],
        }
        made.body = self._proper_body(function, turn_id)
        if function == "turn_sessions":
            made.target = self._choose.choice([b"/", b"/?id=a-session"])
        framing: Callable[[Hostile], Pairs] = self._length
        wrongs: list[str] = self._choose.choices(
            [*parts, "method", "target", "body", "framing", "http"],
            weights=[2, 2, 3, 4, 2, 1, 2, 2, 2, 4, 2, 1],
            k=self._choose.choice([0, 1, 1, 1, 2, 2, 3]),
        )
        for wrong in dict.fromkeys(wrongs):
            if wrong in parts:
                parts[wrong] = getattr(self, "_" + wrong.replace(" ", "_") + "_wrong")(made)
            elif wrong == "method":
                made.method = self._choose.choice(METHODS)
            elif wrong == "target":
                made.target = self._choose.choice(TARGETS)
            elif wrong == "body":
                made.body = self._choose.choice(BODIES)
            elif wrong == "framing":
                framing = self._choose.choice(
                    [self._chunked, self._cut, self._no_chunks, self._too_long, self._none]
                )
        made.pairs = [
            ("Host", b"functions.example"),
            *(one for some in parts.values() for one in some),
        ]
        made.pairs += framing(made)
        if "http" in wrongs:
            self._break(made)
        origins = [value for name, value in made.pairs if name.lower() == "origin"]
        made.origin = b",".join(origins) if origins else None
        return made

    def _proper_body(self, function: str, turn_id: str) -> bytes:
        text = f"{SECRET} words=3 rate=1000 silence=0"
        bodies: dict[str, Any] = {
            "start_turn": {"prompt": text},
            "run_tool_step": {"step": 1, "decision": "approve"},
            "delete_turns": {"turnId": turn_id},
            "finishturn": {"data": {"turn": self._choose.randbytes(20).hex(), "due": 1}},
        }
        return json.dumps(bodies[function]).encode() if function in bodies else b""

    # --- what may be wrong

    def _origin_wrong(self, _made: Hostile) -> Pairs:
        if self._choose.random() < 0.2:
            return []
        if self._choose.random() < 0.1:
            return [("Origin", ALLOWED.encode()), ("Origin", b"https://evil.example")]
        return [("Origin", self._choose.choice(FOREIGN).encode("latin-1"))]

    def _turn_wrong(self, made: Hostile) -> Pairs:
        if self._choose.random() < 0.2:
            again = self._choose.choice(self._turns)
            made.turn_ids = [again]
            return [("X-Stream-Turn-Id", again.encode())]
        if self._choose.random() < 0.1:
            return [("X-Stream-Turn-Id", self._uuid().encode()) for _ in range(2)]
        junk = self._choose.choice(JUNK)
        made.turn_ids = [junk.decode("latin-1")]
        return [("X-Stream-Turn-Id", junk)]

    def _cursor_wrong(self, _made: Hostile) -> Pairs:
        if self._choose.random() < 0.1:
            return [("Last-Event-ID", b"5"), ("Last-Event-ID", b"9")]
        return [("Last-Event-ID", self._choose.choice(CURSORS))]

    def _app_check_wrong(self, _made: Hostile) -> Pairs:
        ways: list[Callable[[], str | bytes]] = [
            lambda: "",
            lambda: self._used_token,
            lambda: self._app_check(ttl=-120),
            lambda: self._app_check(project="demo-other"),
            lambda: self._app_check() + "signature",
            lambda: self._jwt(
                {"alg": "RS256", "kid": SECRET, "typ": "JWT"}, self._claims(), "c2ln"
            ),
            lambda: self._jwt({"alg": "HS256", "kid": "1"}, self._claims(), "c2ln"),
            lambda: self._sign(self._oddly(self._claims())),
            lambda: self._sign(self._oddly(self._claims())),
            lambda: self._jwt(self._choose.choice(ODD), self._claims(), ""),
            lambda: self._jwt({"alg": "none"}, self._choose.choice(ODD), ""),
            lambda: "..".join([SECRET] * 3),
            lambda: "e30." + base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("=") + ".",
            lambda: self._choose.choice(JUNK),
        ]
        made = self._choose.choice(ways)()
        value = made.encode() if isinstance(made, str) else made
        return [("X-Firebase-AppCheck", value)] * self._choose.choice([1, 1, 1, 2])

    def _auth_wrong(self, _made: Hostile) -> Pairs:
        ways: list[Callable[[], str | bytes]] = [
            lambda: "",
            lambda: "Bearer",
            lambda: "Bearer " + SECRET,
            lambda: "Basic " + base64.b64encode(SECRET.encode()).decode(),
            lambda: "bearer  " + self._id_token(),
            lambda: "Bearer " + self._id_token(project="demo-other"),
            lambda: "Bearer " + self._id_token(ttl=-600),
            lambda: (
                "Bearer " + self._jwt({"alg": "RS256", "kid": SECRET}, self._id_claims(), "c2ln")
            ),
            lambda: "Bearer " + self._sign(self._oddly(self._id_claims())),
            lambda: "Bearer " + self._sign(self._oddly(self._id_claims())),
            lambda: "Bearer " + self._jwt(self._choose.choice(ODD), self._id_claims(), ""),
            lambda: "Bearer " + self._jwt({"alg": "none"}, self._choose.choice(ODD), ""),
            lambda: b"Bearer \xff\xfe",
            lambda: self._choose.choice(JUNK),
        ]
        made = self._choose.choice(ways)()
        value = made.encode() if isinstance(made, str) else made
        return [("Authorization", value)] if self._choose.random() < 0.9 else []

    def _type_wrong(self, _made: Hostile) -> Pairs:
        return [("Content-Type", self._choose.choice(TYPES))] if self._choose.random() < 0.8 else []

    def _more_wrong(self, _made: Hostile) -> Pairs:
        return self._choose.sample(MORE, self._choose.choice([1, 1, 3, 8]))

    # --- how long the body is

    def _length(self, made: Hostile) -> Pairs:
        if not made.body and made.method == b"GET":
            return []
        return [("Content-Length", str(len(made.body)).encode())]

    def _chunked(self, made: Hostile) -> Pairs:
        half = len(made.body) // 2
        pieces = [piece for piece in (made.body[:half], made.body[half:]) if piece]
        mark = self._choose.choice([b"", b";x=y"])
        chunks = [b"%x%b\r\n%b\r\n" % (len(piece), mark, piece) for piece in pieces]
        made.body = b"".join(chunks) + b"0\r\n\r\n"
        return [("Transfer-Encoding", b"chunked")]

    def _cut(self, made: Hostile) -> Pairs:
        pairs = self._chunked(made) if self._choose.random() < 0.5 else []
        if not pairs:
            pairs = [("Content-Length", str(len(made.body) + 10).encode())]
        made.body = made.body[: len(made.body) // 2]
        made.ends = False
        return pairs

    def _no_chunks(self, made: Hostile) -> Pairs:
        made.body = (
            self._choose.choice([b"zz\r\n", b"-1\r\n", b"5\r\n{}{}{}{}", b"\r\n"]) + made.body
        )
        made.ends = False
        return [("Transfer-Encoding", b"chunked")]

    def _too_long(self, made: Hostile) -> Pairs:
        pairs = self._length(made)
        made.body += b"GET /x HTTP/1.1\r\n\r\n" if self._choose.random() < 0.5 else b"\x00" * 20
        return pairs

    def _none(self, _made: Hostile) -> Pairs:
        return []

    def _break(self, made: Hostile) -> None:
        made.broken, more = self._choose.choice(BROKEN)
        if made.broken == "the method":
            made.method = b"G(T"
        if made.broken == "a path of other bytes":
            made.target = b"/\xc3\xa9\xff"
        made.pairs += more

    # --- tokens

    def _claims(self, *, project: str | None = None, ttl: int = 300) -> dict[str, Any]:
        claims = token.claims(project or self._project, token.APP, ttl, time.time())
        return {**claims, "jti": f"{SECRET}-{self._uuid()}"}

    def _app_check(self, *, project: str | None = None, ttl: int = 300) -> str:
        return self._sign(self._claims(project=project, ttl=ttl))

    def _id_claims(self, *, project: str | None = None, ttl: int = 3600) -> dict[str, Any]:
        uid = f"{SECRET}-{self._choose.randrange(50)}"
        return token.id_claims(project or self._project, uid, ttl, time.time())

    def _id_token(self, *, project: str | None = None, ttl: int = 3600) -> str:
        return self._sign(self._id_claims(project=project, ttl=ttl))

    def _oddly(self, claims: dict[str, Any]) -> dict[str, Any]:
        name = self._choose.choice(sorted(claims))
        if self._choose.random() < 0.3:
            return {key: value for key, value in claims.items() if key != name}
        return {**claims, name: self._choose.choice(ODD)}

    def _jwt(self, header: Any, claims: Any, signature: str) -> str:
        def part(value: Any) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        return f"{part(header)}.{part(claims)}.{signature}"

    def _uuid(self) -> str:
        return str(uuid.UUID(bytes=self._choose.randbytes(16)))
