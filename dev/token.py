"""Print a local token: of App Check by `python3 -m dev.token`, of a user by `--uid NAME`.

The functions accept them only on the emulator, under a `demo-` project. An App Check token is good
once: it is the unsigned stand-in, in the manner of the Auth emulator's ID tokens, of what the App
Check SDK fetches. An ID token is one of the Auth emulator's.
"""

from __future__ import annotations

import argparse
import base64
import json
import time
import uuid

from dev.project import LOCAL_PROJECT

APP = "1:000000000000:web:local"
TTL_SECONDS = 300
ID_TTL_SECONDS = 3600


def claims(project: str, app: str, ttl_seconds: int, now: float) -> dict[str, object]:
    """Return the claims of a fresh token, valid from `now` (seconds since 1970) on.

    Each call gives another `jti`, by which the functions know a token that was used.
    """
    return {
        "iss": f"https://firebaseappcheck.googleapis.com/{project}",
        "aud": [f"projects/{project}"],
        "sub": app,
        "iat": int(now),
        "exp": int(now) + ttl_seconds,
        "jti": str(uuid.uuid4()),
    }


def id_claims(project: str, uid: str, ttl_seconds: int, now: float) -> dict[str, object]:
    """Return the claims of an ID token, as the Auth emulator gives them to an anonymous user."""
    return {
        "iss": f"https://securetoken.google.com/{project}",
        "aud": project,
        "sub": uid,
        "user_id": uid,
        "auth_time": int(now),
        "iat": int(now),
        "exp": int(now) + ttl_seconds,
        "provider_id": "anonymous",
        "firebase": {"identities": {}, "sign_in_provider": "anonymous"},
    }


def encode(payload: dict[str, object]) -> str:
    """Encode claims as an unsigned JWT: its third part is empty, so it ends with a dot."""
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(payload)}."


def _part(value: dict[str, object]) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def main() -> None:
    """Print one token."""
    parser = argparse.ArgumentParser(
        prog="python3 -m dev.token",
        description="Print a local App Check token, good for one call, or a user's ID token.",
    )
    parser.add_argument("--project", default=LOCAL_PROJECT, help="its id (default: %(default)s)")
    parser.add_argument("--app", default=APP, help="the app id (default: %(default)s)")
    parser.add_argument("--uid", help="print the ID token of this user instead")
    parser.add_argument(
        "--ttl",
        type=int,
        help=f"seconds (default: {TTL_SECONDS}, of a user {ID_TTL_SECONDS})",
    )
    options = parser.parse_args()
    ttl = options.ttl or (TTL_SECONDS if options.uid is None else ID_TTL_SECONDS)
    if options.uid is None:
        print(encode(claims(options.project, options.app, ttl, time.time())))
    else:
        print(encode(id_claims(options.project, options.uid, ttl, time.time())))


if __name__ == "__main__":
    main()
