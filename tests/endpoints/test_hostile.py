"""Thousands of hostile requests against every deployed function: nothing gives."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import main
from dev import token
from functions import firestore, settings
from tests.support.google import KID, Google, signed
from tests.support.hostile import Answer, Hostile, Sign, generate, send
from tests.support.hostile_parts import ALLOWED, SECRET
from tests.support.patience import PATIENCE_SECONDS
from tests.support.server import FunctionServer

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SEED = 20_261_130
COUNT = {"emulator suite": 2000, "deployed": 1000}
HANG_SECONDS = PATIENCE_SECONDS
AT_ONCE = 8

DEPLOYED = sorted(
    name for name, value in vars(main).items() if hasattr(value, "__firebase_endpoint__")
)
LEAKS = re.compile(
    rb"Traceback|Exception|Error:|\.py\b|werkzeug|gunicorn|<html|<!doctype", re.IGNORECASE
)


def codes() -> dict[str, set[int]]:
    """The closed list of docs/PROTOCOL.md: the statuses of each code."""
    text = (ROOT / "docs" / "PROTOCOL.md").read_text()
    rows = re.findall(r"^\| (\d{3}) \| `(\w+)` \|", text, re.MULTILINE)
    rows += re.findall(r"\b(\d{3})\s+`(\w+)`", text)
    known: dict[str, set[int]] = {}
    for status, code in rows:
        known.setdefault(code, set()).add(int(status))
    return known


@dataclass(frozen=True)
class Place:
    """Where the functions run."""

    project: str
    servers: dict[str, FunctionServer]
    sign: Sign
    count: int
    """How many requests it gets."""


@pytest.fixture(scope="module", params=list(COUNT))
def place(
    request: pytest.FixtureRequest,
    firestore_emulator: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """A process of each function that `main` deploys: with the stand-ins of the Emulator Suite, and
    as on Cloud Run, with real keys and Google on loopback.
    """
    # A project of this run alone: its turns are counted.
    project = f"demo-hostile-{uuid.uuid4().hex[:12]}"
    sign: Sign = token.encode
    environ = {"SOURCE": str(ROOT / "main.py"), "ALLOWED_ORIGINS": ALLOWED}
    with ExitStack() as stack:
        if request.param == "deployed":
            google = stack.enter_context(Google())
            project = project.removeprefix("demo-")
            environ |= {**google.environ(tmp_path_factory.mktemp("google")), "REQUIRE_AUTH": "true"}
            environ |= {"SOURCE": str(ROOT / "tests" / "support" / "deployed.py")}
            environ |= {"GCLOUD_PROJECT": project}
            sign = signed_by_google
        yield Place(
            project,
            {
                name: stack.enter_context(
                    FunctionServer(name, firestore_emulator, project, environ)
                )
                for name in DEPLOYED
            },
            sign,
            COUNT[request.param],
        )


def signed_by_google(claims: dict[str, Any]) -> str:
    """A token as Google makes it."""
    return signed(claims, KID, None)


@pytest.fixture(scope="module")
def answered(place: Place) -> list[tuple[Hostile, Answer]]:
    """Every request with its answer, for the tests to look at."""

    def ask(request: Hostile) -> tuple[Hostile, Answer]:
        try:
            return request, send(
                place.servers[request.function].port, request, seconds=HANG_SECONDS
            )
        except TimeoutError:
            raise AssertionError(f"no answer within {HANG_SECONDS} s: {request}") from None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(
            pool.map(ask, generate(SEED, place.count, methods(), place.project, place.sign))
        )


def methods() -> dict[str, tuple[str, ...]]:
    """What each function takes; what `main` deploys besides is asked by POST."""
    taken = {"resume_turn": ("POST", "GET"), "turn_sessions": ("GET", "DELETE")}
    return {name: taken.get(name, ("POST",)) for name in DEPLOYED}


def ours(answered: list[tuple[Hostile, Answer]]) -> list[tuple[Hostile, Answer]]:
    """Those that our code answered: all but those that HTTP itself forbids."""
    return [(request, answer) for request, answer in answered if not request.broken]


def test_every_request_is_answered_and_no_answer_is_a_failure(
    answered: list[tuple[Hostile, Answer]], place: Place
) -> None:
    """No 5xx but a 503 that says when to come back; no hang; no connection closed instead."""
    assert len(answered) == place.count
    for request, answer in ours(answered):
        assert answer.status, request
        if answer.status >= 500:
            assert (answer.status, "retry-after" in answer.headers) == (503, True), (
                request,
                answer,
            )
        assert answer.headers["x-correlation-id"], request


def test_the_run_comes_to_everything(answered: list[tuple[Hostile, Answer]]) -> None:
    """It is no use if all is refused at the door: each way out is taken, by every function."""
    seen = Counter(answer.status for _request, answer in answered)
    assert {200, 204, 400, 401, 404, 405, 413, 415} <= set(seen), seen
    for name in DEPLOYED:
        of_it = {answer.status for request, answer in answered if request.function == name}
        assert len(of_it) >= 4, (name, of_it)
    said = {json.loads(a.body)["error"]["code"] for r, a in ours(answered) if is_error(r, a)}
    assert {"bad_turn_id", "bad_cursor", "bad_body", "app_check_failed", "sign_in_failed"} <= said


def is_error(request: Hostile, answer: Answer) -> bool:
    """Whether an answer has the body of an error: one to HEAD has none."""
    return answer.status >= 400 and request.method != b"HEAD"


def test_every_error_is_json_of_the_closed_list(answered: list[tuple[Hostile, Answer]]) -> None:
    """With the status that the list gives it, and not a word of an exception."""
    known = codes()
    for request, answer in ours(answered):
        if not is_error(request, answer):
            continue
        assert answer.headers["content-type"] == "application/json", (request, answer)
        error = json.loads(answer.body)["error"]
        assert {"code", "message", "correlationId"} <= set(error), (request, answer)
        assert answer.status in known[error["code"]], (request, answer)
        assert not LEAKS.search(answer.body), (request, answer)
        assert SECRET.encode() not in answer.body, (request, answer)


def test_our_origin_can_read_every_answer_and_no_other_can(
    answered: list[tuple[Hostile, Answer]],
) -> None:
    """Errors included; another origin is told nothing of CORS at all."""
    for request, answer in ours(answered):
        granted = [name for name in answer.headers if name.startswith("access-control-")]
        if request.origin == ALLOWED.encode():
            assert answer.headers.get("access-control-allow-origin") == ALLOWED, (request, answer)
            exposed = answer.headers["access-control-expose-headers"]
            assert {"Retry-After", "X-Correlation-Id"} <= set(exposed.split(", "))
        else:
            assert not granted, (request, answer)
        assert "Origin" in answer.headers["vary"], (request, answer)


def test_what_is_no_http_is_refused_by_the_http_server(
    answered: list[tuple[Hostile, Answer]],
) -> None:
    """gunicorn's own answer, before any code of ours can run, and so as HTML without CORS."""
    for request, answer in answered:
        if request.broken:
            assert answer.status in {400, 431}, (request, answer)
            assert b"Traceback" not in answer.body, (request, answer)


def test_no_refused_request_made_a_turn(
    answered: list[tuple[Hostile, Answer]],
    place: Place,
    firestore_emulator: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The turns in Firestore are those of starts that were answered with a stream. A start that
    Firestore did not answer in time may have made one: sent again, it attaches to it.
    """
    started = {
        turn_id
        for request, answer in answered
        if request.function == "start_turn" and answer.status in {200, 503}
        for turn_id in request.turn_ids
    }
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    monkeypatch.setenv("GCLOUD_PROJECT", place.project)
    monkeypatch.setattr(firestore, "_client", None)
    settings.settings.cache_clear()
    try:
        stored = firestore.client().collection(firestore.TURNS).stream()
        found = {(snapshot.to_dict() or {})["turnId"] for snapshot in stored}
    finally:
        firestore.client().close()
        settings.settings.cache_clear()
    assert found <= started
    assert found, "the run was meant to start some"


def test_no_secret_is_in_a_log(answered: list[tuple[Hostile, Answer]], place: Place) -> None:
    """Not from a token, a prompt, a path or a header; and every line is a structured one."""
    assert answered
    for name, server in place.servers.items():
        assert SECRET not in server.output(), name
        assert server.log_lines(), name


def test_the_functions_serve_on(answered: list[tuple[Hostile, Answer]], place: Place) -> None:
    """Every slot was given back: none of these requests finds all of them taken."""
    assert answered
    for request in generate(1, 40 * len(DEPLOYED), methods(), place.project, place.sign):
        answer = send(place.servers[request.function].port, request, seconds=HANG_SECONDS)
        assert b"at_capacity" not in answer.body, (request, answer)
