"""Which agent is served, and when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from functions.turns import takeover
from functions.turns.owners import Owners
from functions.turns.program import Agent, Turn
from functions.turns.record import Request
from tests.support.patience import wait_until
from tests.turns.conftest import load, settings

ROOT = Path(__file__).parents[2]
TURN = "a-turn-that-has-ended-already"

REPLAY = """
import sys, time
import main
from dev import token
from flask import Flask, request
from functions import firestore
firestore.client().collection("warm").document("up").get()  # however long that takes
claims = token.claims("demo-agent-turns", token.APP, token.TTL_SECONDS, time.time())
headers = {"X-Firebase-AppCheck": token.encode(claims), "X-Stream-Turn-Id": sys.argv[1]}
with Flask("replay").test_request_context("/", headers=headers):
    response = main.resume_turn(request)
    said = b"".join(response.response)
assert response.status_code == 200, said
assert b"event: done" in said, said
heavy = ("pydantic", "pydantic_ai", "google.genai", "functions.agents.", "functions.pydantic_ai")
print([name for name in sys.modules if name.startswith(heavy)])
"""


def run(code: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the repository."""
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.emulator
@pytest.mark.usefixtures("storage")
def test_a_plain_replay_imports_no_agent(firestore_emulator: str) -> None:
    """Nor Pydantic, nor a provider's client: whichever agent is served."""
    from dev import token

    taken = takeover.create(
        f"app:{token.APP}:{TURN}",
        TURN,
        Request("hello", None),
        agent_version="1",
        settings=settings(),
    )
    assert taken is not None

    def say(turn: Turn) -> None:
        turn.token("Hello.")

    Owners(lambda: Agent(say), settings()).own(taken)
    wait_until(lambda: load(taken).finished)
    done = run(
        REPLAY,
        TURN,
        AGENT="gemini",
        FIRESTORE_EMULATOR_HOST=firestore_emulator,
        GCLOUD_PROJECT="demo-agent-turns",
        FUNCTIONS_EMULATOR="true",
        REQUIRE_AUTH="false",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_another_agent_than_those_there_are_stops_the_start() -> None:
    """With the variable's name."""
    failed = run("import main", AGENT="claude")
    assert failed.returncode != 0
    assert "AGENT must be demo or gemini, not 'claude'" in failed.stderr


def test_gemini_without_its_key_says_which_secret_is_missing() -> None:
    """The turn is refused with 503 `not_configured`; the log names the secret."""
    code = "from functions.agents import agent; agent()"
    failed = run(code, AGENT="gemini", GEMINI_API_KEY="")
    assert "NotConfigured: the secret GEMINI_API_KEY is not set" in failed.stderr
