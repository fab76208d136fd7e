"""`AGENT=gemini` on the Emulator Suite: a secret from `.secret.local`, a local server as model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dev import suite
from dev.project import ROOT, ProblemError
from functions.wire.fold import Fold
from tests.support.client import asked_again, folded, headers, new_turn_id
from tests.support.gemini import Asked, Gemini, Reply, call, says
from tests.support.sse import RawStream

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(400)]


@contextmanager
def a_local_secret() -> Iterator[None]:
    """A file of secrets as a developer has it, unless there is one."""
    file = ROOT / ".secret.local"
    if file.exists():
        yield
        return
    file.write_text("GEMINI_API_KEY=a-key\n", "utf-8")
    try:
        yield
    finally:
        file.unlink()


def opens_a_ticket(asked: Asked) -> Reply:
    """A model that calls a tool, and then answers."""
    return [
        says("Let me ", "see.", call("open_ticket", subject="A-17")),
        says("A ticket ", "is open."),
    ][asked.responses]


def test_a_turn_of_the_gemini_agent_on_the_emulator_suite(firestore_emulator: str) -> None:
    """Discovered with its secret, given it, asked with it; its text and its tool as events."""
    assert firestore_emulator  # says in one line why not, where there is none
    with Gemini(opens_a_ticket) as model, a_local_secret():
        settings = {"AGENT": "gemini", "GOOGLE_GEMINI_BASE_URL": model.url}
        try:
            with suite.running(settings=settings, functions=("start_turn",)) as running:
                fold = ask(running.function("start_turn"))
                log = running.log.read_text("utf-8", errors="replace")
        except ProblemError as problem:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(problem))
    assert fold.ended is not None
    assert fold.ended.data == {
        "reason": "stop",
        "usage": {"inputTokens": 20, "outputTokens": 10, "requests": 2},
    }
    assert fold.text == "Let me see.\n\nA ticket is open."
    assert "Trying to access secret" not in log


def ask(url: str) -> Fold:
    """Start a turn as a signed-in user, and read it to its end."""
    turn_id, body = new_turn_id(), json.dumps({"prompt": "Order A-17"}).encode()

    def attempt() -> RawStream:
        given = headers(turn_id, uid="a-reader", Content_Type="application/json")
        return RawStream(url, "POST", given, body)

    with asked_again(attempt) as stream:
        stream.read_to_end()
        return folded(stream)
