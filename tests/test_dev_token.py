"""The local App Check token."""

import base64
import json
import subprocess
import sys
import time
from typing import Any

from dev import token
from dev.project import ROOT


def decode(part: str) -> dict[str, Any]:
    assert "=" not in part
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded


def run(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "dev.token", *arguments]
    words = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return words.removesuffix("\n").split(".")


def test_it_is_an_unsigned_jwt_with_the_claims_of_app_check() -> None:
    before = int(time.time())
    header, payload, signature = run()
    assert decode(header) == {"alg": "none", "typ": "JWT"}
    assert signature == ""
    claims = decode(payload)
    assert claims["iss"] == "https://firebaseappcheck.googleapis.com/demo-agent-turns"
    assert claims["aud"] == ["projects/demo-agent-turns"]
    assert claims["sub"] == "1:000000000000:web:local"
    assert before <= claims["iat"] <= time.time()
    assert claims["exp"] == claims["iat"] + 300
    assert set(claims) == {"iss", "aud", "sub", "iat", "exp", "jti"}


def test_project_app_and_lifetime_can_be_chosen() -> None:
    claims = decode(run("--project", "demo-other", "--app", "1:2:web:3", "--ttl", "-5")[1])
    assert claims["aud"] == ["projects/demo-other"]
    assert claims["iss"].endswith("/demo-other")
    assert claims["sub"] == "1:2:web:3"
    assert claims["exp"] == claims["iat"] - 5


def test_a_user_has_an_id_token_as_the_auth_emulator_gives_it() -> None:
    header, payload, signature = run("--uid", "ada")
    assert (decode(header)["alg"], signature) == ("none", "")
    claims = decode(payload)
    assert claims["iss"] == "https://securetoken.google.com/demo-agent-turns"
    assert (claims["aud"], claims["sub"]) == ("demo-agent-turns", "ada")
    assert claims["exp"] == claims["iat"] + 3600


def test_each_token_is_another_one() -> None:
    made = [token.claims("demo-x", "app", 60, 1.5) for _ in range(2)]
    assert made[0]["jti"] != made[1]["jti"]
    assert made[0]["iat"] == made[1]["iat"] == 1
