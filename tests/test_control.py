"""The local control server kills functions of its own stack only, for its own page only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import control, processes
from dev.project import ROOT
from functions import firestore
from functions.agents import demo_tools
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.payments import PaymentServer

PAGE = "http://127.0.0.1:5000"
MARK = uuid.uuid4().hex

pytestmark = pytest.mark.emulator


def served(mark: str, target: str | None) -> subprocess.Popen[bytes]:
    """A process that looks like one of a stack's."""
    environ = {**os.environ, processes.MARK_VARIABLE: mark}
    if target is not None:
        environ["FUNCTION_TARGET"] = target
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environ)


@pytest.fixture(scope="module")
def payments() -> Iterator[PaymentServer]:
    """A payment server that has charged once."""
    with PaymentServer() as server:
        server.post("/charges", "k", {"order": "A-17", "cents": 1900})
        yield server


@pytest.fixture(scope="module")
def url(
    payments: PaymentServer, firestore_emulator: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The server as `make dev` starts it."""
    port = int(firestore_emulator.rpartition(":")[2])
    announce = tmp_path_factory.mktemp("control") / "assets" / "local.json"
    process = subprocess.Popen(
        control.program(5000, port, announce, payments.url),
        cwd=ROOT,
        env={**os.environ, processes.MARK_VARIABLE: MARK},
    )
    try:
        yield announced(announce, process)
    finally:
        process.kill()
        process.wait()


def announced(path: Path, process: subprocess.Popen[bytes]) -> str:
    """The URL that the server writes down once it listens."""
    wait_until(lambda: process.poll() is not None or (path.exists() and path.read_text() != ""))
    assert process.poll() is None
    found: str = json.loads(path.read_text())["control"]
    return found


def call(url: str, method: str = "GET", **headers: str) -> tuple[int, str | None, object]:
    """One request: its status, the origin that may read it, its body."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, method=method, headers=names)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            body = response.read()
            allowed = response.headers["Access-Control-Allow-Origin"]
            return response.status, allowed, json.loads(body) if body else None
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers["Access-Control-Allow-Origin"], None


def test_it_kills_the_streaming_functions_of_its_stack_and_nothing_else(url: str) -> None:
    """Owners and followers die; cancel_turn, the suite itself and another stack live."""
    dying = [served(MARK, target) for target in control.TARGETS]
    living = [served(MARK, "cancel_turn"), served(MARK, None), served("another", "start_turn")]
    try:
        # Each shows its environment once it runs.
        wait_until(lambda: len(processes.marked(MARK)) == 6 and processes.marked("another") != [])
        status, _, body = call(f"{url}/kill", "POST", Origin=PAGE, **{control.HEADER: "1"})
        assert (status, body) == (200, {"killed": 3})
        assert [process.wait(PATIENCE_SECONDS) for process in dying] == [-9, -9, -9]
        assert [process.poll() for process in living] == [None, None, None]
    finally:
        for process in (*dying, *living):
            process.kill()
            process.wait()


@pytest.mark.usefixtures("storage")
def test_its_page_may_read_what_took_place(url: str) -> None:
    """The payment server's own count and Firestore's, with CORS for the page of Hosting."""
    status, allowed, before = call(f"{url}/effects", Origin=PAGE)
    assert (status, allowed) == (200, PAGE)
    firestore.client().collection(demo_tools.TICKETS).document().set({"subject": "a test"})
    _, _, after = call(f"{url}/effects", Origin=PAGE)
    assert isinstance(before, dict)
    assert after == {"charges": 1, "refunds": 0, "tickets": before["tickets"] + 1}


def test_a_post_needs_its_header(url: str) -> None:
    """A form or a beacon of any page cannot send it, and gets nothing done."""
    assert call(f"{url}/kill", "POST", Origin=PAGE)[0] == 403


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "foreign",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example:80"}],
    ids=["another site", "a sandboxed page", "a rebound name"],
)
def test_a_foreign_page_gets_nothing(url: str, method: str, foreign: dict[str, str]) -> None:
    """Neither an answer that it may read, nor a preflight that lets it try, nor an effect."""
    given = {control.HEADER: "1", **foreign}
    status, allowed, _ = call(f"{url}/kill", method, **given)
    assert status == 403
    assert not allowed


def test_the_page_may_ask_first(url: str) -> None:
    """The preflight allows the header that a POST needs."""
    status, allowed, _ = call(f"{url}/kill", "OPTIONS", Origin=PAGE)
    assert (status, allowed) == (204, PAGE)


def test_it_runs_beside_a_local_stack_only(tmp_path: Path) -> None:
    """Without a stack's mark it says so, and listens nowhere."""
    environ = {name: value for name, value in os.environ.items() if name != processes.MARK_VARIABLE}
    run = subprocess.run(
        control.program(5000, 8080, tmp_path / "local.json", None),
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert run.returncode == 1
    assert "use `make dev`" in run.stderr
    assert not (tmp_path / "local.json").exists()
