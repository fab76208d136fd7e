"""Google's side of identity on loopback: keys, the use of App Check tokens, users; and its tokens.

    with Google() as google:
        google.break_("keys", "html")
        token = google.app_check_token(exp=google.now() - 90)

Real RS256 keys. `tests/support/loopback.py` makes the Admin SDK call here.
"""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from jwt.algorithms import RSAAlgorithm

from dev.server import LocalServer
from tests.support.patience import PATIENCE_SECONDS

PROJECT = "real-project"
KID = "a-key"

_PLACES = {
    "GET /jwks": "keys",
    "GET /certs": "certs",
    "POST /token": "credentials",
    "POST /use": "use",
    "POST /users": "users",
    "POST /tasks": "tasks",
}
_BROKEN: dict[str, tuple[int, bytes]] = {
    "html": (200, b"<html>sign in to this wifi</html>"),
    "binary": (200, b"\xff\xfe\x00"),
    "list": (200, b"[]"),
    "null": (200, b"null"),
    "empty": (200, b'{"keys": []}'),
    "400": (400, b'{"error": {"message": "sk-secret"}}'),
    "403": (403, b'{"error": {"message": "sk-secret"}}'),
    "404": (404, b"sk-secret"),
    "500": (500, b"sk-secret"),
    "503": (503, b"sk-secret"),
}


@cache
def private_key(name: str) -> rsa.RSAPrivateKey:
    """A key of that name; making one takes a moment."""
    assert name
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: rsa.RSAPrivateKey) -> str:
    """As a service account's file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def certificate(key: rsa.RSAPrivateKey) -> str:
    """Self-signed, as Google lists those of ID tokens."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "securetoken")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


@dataclass(frozen=True)
class User:
    """What Firebase Auth knows of one."""

    disabled: bool = False
    valid_since: int = 0


class Google:
    """A context manager. `asked` counts requests by place: those of `_PLACES`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.users: dict[str, User] = {}
        self.tasks: list[dict[str, Any]] = []
        """What was put on a queue of Cloud Tasks."""
        self._used: set[str] = set()
        self._broken: dict[str, str] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        google = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                google._answer(self)

            def do_POST(self) -> None:
                google._answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = LocalServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def break_(self, place: str, how: str) -> None:
        """From now on that place answers so; "hang" does not answer, "drop" cuts the connection."""
        self._broken[place] = how

    def mend(self) -> None:
        """From now on all of it works."""
        self._broken.clear()

    def environ(self, folder: Path, *, patient: bool = True) -> dict[str, str]:
        """What a process of a deployed function is given. `folder` takes its credentials.

        It waits for our answers however long they take, for on a busy machine that is longer than
        Google's may; but not where they are to stay away, `patient=False`.
        """
        folder.mkdir(exist_ok=True)
        account = folder / "account.json"
        account.write_text(
            json.dumps(
                {
                    "type": "service_account",
                    "project_id": PROJECT,
                    "private_key_id": "x",
                    "private_key": pem(private_key("account")),
                    "client_email": "functions@example.com",
                    "client_id": "1",
                    "token_uri": f"{self.url}/token",
                }
            )
        )
        return {
            "SOURCE": str(Path(__file__).with_name("production.py")),
            "GOOGLE_ON_LOOPBACK": self.url,
            "GOOGLE_CALL_SECONDS": str(PATIENCE_SECONDS) if patient else "",
            "GOOGLE_APPLICATION_CREDENTIALS": str(account),
            "FUNCTIONS_EMULATOR": "",
            "FIREBASE_AUTH_EMULATOR_HOST": "",
            "GCLOUD_PROJECT": PROJECT,
            "K_SERVICE": "resume-turn",
            "K_REVISION": "resume-turn-00001-abc",
            "K_CONFIGURATION": "resume-turn",
        }

    @staticmethod
    def now() -> int:
        """Seconds since 1970."""
        return int(time.time())

    def app_check_token(
        self, *, key: str = KID, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A fresh token; a claim or a field of the header given as None is left out."""
        now = self.now()
        return signed(
            {
                "iss": "https://firebaseappcheck.googleapis.com/123456789",
                "aud": ["projects/123456789", f"projects/{PROJECT}"],
                "sub": "1:123456789:web:abc",
                "iat": now,
                "exp": now + 300,
                "jti": str(uuid.uuid4()),
                **claims,
            },
            key,
            header,
        )

    def id_token(
        self,
        uid: str = "ada",
        *,
        key: str = KID,
        header: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """A user's token; a claim or a field of the header given as None is left out."""
        now = self.now()
        return signed(
            {
                "iss": f"https://securetoken.google.com/{PROJECT}",
                "aud": PROJECT,
                "sub": uid,
                "auth_time": now,
                "iat": now,
                "exp": now + 3600,
                "firebase": {"sign_in_provider": "password", "identities": {}},
                **claims,
            },
            key,
            header,
        )

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", "0")))
        place = _PLACES.get(f"{request.command} {request.path.split('?')[0]}", "nowhere")
        with self._lock:
            self.asked[place] += 1
        how = self._broken.get(place)
        if how == "hang":
            self._over.wait()
        if how in {"hang", "drop"}:
            request.close_connection = True
            return
        status, data = _BROKEN[how] if how else (200, json.dumps(self._say(place, body)).encode())
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Cache-Control", "no-store" if how else "max-age=20000")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _say(self, place: str, body: bytes) -> object:
        if place == "keys":
            shown = json.loads(RSAAlgorithm.to_jwk(private_key(KID).public_key()))
            return {"keys": [{**shown, "kid": KID, "alg": "RS256", "use": "sig"}]}
        if place == "certs":
            return {KID: certificate(private_key(KID))}
        if place == "credentials":
            return {"access_token": "sk-access", "expires_in": 3600, "token_type": "Bearer"}
        asked = json.loads(body)
        if place == "use":
            with self._lock:
                used = asked["app_check_token"] in self._used
                self._used.add(asked["app_check_token"])
            return {"alreadyConsumed": True} if used else {}
        if place == "tasks":
            with self._lock:
                self.tasks.append(asked["task"])
            return {"name": "projects/p/locations/l/queues/finishturn/tasks/1"}
        user = self.users.get(asked["localId"][0])
        if user is None:
            return {"kind": "identitytoolkit#GetAccountInfoResponse"}
        known = {"localId": asked["localId"][0], "disabled": user.disabled}
        return {"users": [{**known, "validSince": str(user.valid_since)}]}


def signed(claims: dict[str, Any], key: str, header: dict[str, Any] | None) -> str:
    """A JWT, by RS256 unless the header says otherwise. What is None is left out."""
    parts: list[dict[str, Any]] = [
        {"alg": "RS256", "typ": "JWT", "kid": KID, **(header or {})},
        claims,
    ]
    said = [{name: value for name, value in part.items() if value is not None} for part in parts]
    text = ".".join(_base64(json.dumps(part).encode()) for part in said)
    if said[0].get("alg") == "HS256":  # by the public key, which everybody knows
        secret = certificate(private_key(KID)).encode()
        return f"{text}.{_base64(hmac.digest(secret, text.encode(), 'sha256'))}"
    signature = private_key(key).sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{_base64(signature)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
