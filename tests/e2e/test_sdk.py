"""The emulator path with the official Firebase JS SDK: App Check by a custom provider, sign-in."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from dev import node, suite
from dev.project import ProblemError
from functions.wire import sse
from functions.wire.fold import Fold, fold
from tests.support.client import new_turn_id

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(400)]

FUNCTIONS = ("start_turn", "resume_turn", "cancel_turn")


@pytest.fixture(scope="module")
def said(firestore_emulator: str) -> Iterator[dict[str, Any]]:
    """What the SDK's app was answered, call by call: `sdk/call.js`."""
    assert firestore_emulator  # says in one line why not, where there is none
    try:
        with suite.running(functions=FUNCTIONS) as stack:
            functions = stack.function("").removesuffix("/")
            asked = {
                "functions": functions,
                "auth": f"http://{stack.host('auth')}",
                "project": stack.project,
                "turn": new_turn_id(),
            }
            ended = subprocess.run(
                [node.locate(), str(node.SDK / "call.js"), json.dumps(asked)],
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
            yield json.loads(ended.stdout.splitlines()[-1])
    except ProblemError as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))


def text_of(answer: dict[str, Any]) -> str:
    """The turn's text in an answer that is a whole stream."""
    assert answer["status"] == 200, answer
    whole = answer["text"].encode().replace(sse.PING, b"")
    state = Fold()
    fold(sse.decode(whole), state)
    assert state.ended is not None
    return state.text


def test_without_a_user_a_call_is_refused(said: dict[str, Any]) -> None:
    """Sign-in is required by default, on the Emulator Suite as in production."""
    assert said["withoutUser"]["status"] == 401
    assert said["withoutUser"]["error"]["code"] == "sign_in_required"


def test_an_anonymous_user_has_a_turn_of_their_own(said: dict[str, Any]) -> None:
    """Started, read again and ended with a limited-use token each."""
    assert text_of(said["start"]) == text_of(said["resume"])
    assert said["cancel"] == {"status": "done"}


def test_the_sdks_token_is_good_for_one_call(said: dict[str, Any]) -> None:
    """Over all functions' processes."""
    assert said["sameTokenTwice"]["error"]["code"] == "app_check_failed"


def test_a_user_with_a_password_sees_nothing_of_it(said: dict[str, Any]) -> None:
    """The answer of an unknown turn; under the same name they have a turn of their own."""
    assert said["passwordUid"] != said["anonymousUid"]
    assert said["othersTurn"]["error"]["code"] == "unknown_turn"
    assert text_of(said["ownTurnOfThatName"]) != text_of(said["start"])
