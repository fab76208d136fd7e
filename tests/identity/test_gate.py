"""The one gate: whatever `main` deploys for clients is behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import main
from tests.conftest import Serve
from tests.identity.conftest import LET_IN, Answer, call, warmed
from tests.support.client import app_check, id_token
from tests.support.server import ROOT, FunctionServer

pytestmark = pytest.mark.emulator

WELL_FORMED: dict[str, tuple[str, object]] = {
    "start_turn": ("POST", {"prompt": "hello"}),
    "resume_turn": ("GET", None),
    "run_tool_step": ("POST", {"step": 1, "decision": "approve"}),
    "cancel_turn": ("POST", None),
    "turn_sessions": ("GET", None),
    "delete_turns": ("POST", {"all": True}),
}
"""A request that each would serve, but for its tokens."""


def endpoints() -> dict[str, Any]:
    """What `firebase deploy` finds."""
    found = (
        (name, getattr(one, "__firebase_endpoint__", None)) for name, one in vars(main).items()
    )
    return {name: endpoint for name, endpoint in found if endpoint is not None}


def test_what_clients_may_call_is_known_here() -> None:
    """A new function is listed above, or only Google calls it."""
    public = {name for name, endpoint in endpoints().items() if endpoint.httpsTrigger is not None}
    assert public == set(WELL_FORMED)


@pytest.mark.parametrize("function", WELL_FORMED)
def test_no_function_serves_without_a_genuine_app_and_a_user(serve: Serve, function: str) -> None:
    """As deployed by default: both tokens are needed, and neither stands for the other."""
    method, fields = WELL_FORMED[function]
    body = None if fields is None else json.dumps(fields).encode()
    server = serve(function, SOURCE=str(ROOT / "main.py"), REQUIRE_AUTH="true")

    def outcome(app: str | None, bearer: str | None) -> tuple[int, str]:
        return call(server, app=app, bearer=bearer, body=body, method=method).outcome

    assert outcome(None, None) == (401, "app_check_failed")
    assert outcome(None, id_token("ada")) == (401, "app_check_failed")
    assert outcome(app_check(), None) == (401, "sign_in_required")
    assert outcome(app_check(), app_check()) == (401, "sign_in_failed")
    assert outcome(id_token("ada"), id_token("ada")) == (401, "app_check_failed")
    assert outcome(app_check(), id_token("ada")) in {(200, ""), *LET_IN}


def test_a_missing_secret_is_503_by_name_at_the_first_turn(serve: Serve) -> None:
    """What needs none of it is served; the log names the secret, too."""
    environ = {"SOURCE": str(ROOT / "main.py"), "AGENT": "gemini", "GEMINI_API_KEY": ""}
    starter = serve("start_turn", **environ)

    def begun(server: FunctionServer) -> Answer:
        return call(server, app=app_check(), body=b'{"prompt": "hello"}')

    answer = begun(warmed(starter, begun))
    assert answer.outcome == (503, "not_configured")
    assert "GEMINI_API_KEY" in json.loads(answer.body)["error"]["message"]
    assert "retry-after" not in answer.headers
    assert "GEMINI_API_KEY" in {line.get("secret") for line in starter.log_lines()}
    assert call(serve("resume_turn", **environ), app=app_check()).outcome in LET_IN
