"""In a project that has functions, rules and indexes of its own, by docs/guides/deploy.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev import suite
from dev.project import LOCAL_PROJECT, ROOT, ProblemError, function_url
from dev.stack import Stack, answer
from tests.support.client import asked_again, folded, headers, new_turn_id
from tests.support.patience import PATIENCE_SECONDS
from tests.support.sse import RawStream

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(400)]

READY_SECONDS = 150.0
FRAMEWORK = "functions-framework"
OURS = json.loads((ROOT / "firebase.json").read_text())

THEIR_MAIN = """\
from firebase_functions import https_fn


@https_fn.on_request()
def hello(request):
    return "hello from the shop"
"""
THEIR_RULES = """\
rules_version = '2';
service cloud.firestore {
  match /databases/{database}/documents {
    match /products/{product} {
      allow read: if true;
    }
%s  }
}
"""
THEIR_INDEXES: dict[str, Any] = {
    "indexes": [
        {
            "collectionGroup": "orders",
            "queryScope": "COLLECTION",
            "fields": [
                {"fieldPath": "user", "order": "ASCENDING"},
                {"fieldPath": "at", "order": "DESCENDING"},
            ],
        }
    ],
    "fieldOverrides": [
        {"collectionGroup": "carts", "fieldPath": "until", "ttl": True, "indexes": []}
    ],
}


@dataclass(frozen=True)
class Shop:
    """A project of somebody's, with this package in it, on one Emulator Suite."""

    folder: Path
    ports: dict[str, int]
    log: Path

    def function(self, name: str) -> str:
        return function_url(name, self.ports["functions"])

    def read(self, collection: str) -> int:
        """The status that a client gets who lists a collection, signed in as nobody."""
        path = f"projects/{LOCAL_PROJECT}/databases/(default)/documents/{collection}"
        return status_of(f"http://127.0.0.1:{self.ports['firestore']}/v1/{path}")


@pytest.fixture(scope="module")
def shop(firestore_emulator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Theirs, and then what the guide says, step by step."""
    assert firestore_emulator
    # A real path: `source` is relative, and a link on the way breaks that.
    folder = tmp_path_factory.mktemp("shop").resolve()
    made = Shop(folder, suite.choose_ports(), folder / "suite.log")
    config = theirs(made)
    put_in(made.folder, config)
    (made.folder / "firebase.json").write_text(json.dumps(config))
    try:
        environ = {"TMPDIR": str(made.folder)}  # other suites of the project find nothing of ours
        with ExitStack() as stack:
            output = stack.enter_context(made.log.open("wb"))
            with suite.one_at_a_time():
                started = stack.enter_context(
                    Stack(cwd=made.folder, output=output, environment=environ)
                )
                suite.await_definitions(started, made.log, READY_SECONDS)
            deadline = time.monotonic() + READY_SECONDS
            while (lacking := not_ready(made)) is not None:
                words = f"{made.log.read_text(errors='replace')}\n{lacking}"
                assert started.ended() is None, words
                assert time.monotonic() < deadline, words
                time.sleep(0.5)
            yield made
    except ProblemError as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))


def theirs(shop: Shop) -> dict[str, Any]:
    """The project as it was: its files, and what its `firebase.json` says."""
    functions = shop.folder / "functions"
    functions.mkdir()
    (functions / "main.py").write_text(THEIR_MAIN)
    (functions / "requirements.txt").write_text("firebase-functions\n")
    # A venv of theirs, with what is installed in ours.
    venv.create(functions / "venv", with_pip=False, symlinks=True)
    packages = next((functions / "venv").glob("lib/python*/site-packages"))
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (functions / "venv" / "bin" / FRAMEWORK).symlink_to(Path(sys.executable).parent / FRAMEWORK)
    (shop.folder / "firestore.rules").write_text(THEIR_RULES % "")
    (shop.folder / "firestore.indexes.json").write_text(json.dumps(THEIR_INDEXES))
    (shop.folder / "public").mkdir()
    emulators: dict[str, Any] = {
        name: {"host": "127.0.0.1", "port": port}
        for name, port in shop.ports.items()
        if name != "websocket"
    }
    emulators["firestore"]["websocketPort"] = shop.ports["websocket"]
    return {
        "functions": [{"source": "functions", "codebase": "default", "runtime": "python311"}],
        "firestore": {"rules": "firestore.rules", "indexes": "firestore.indexes.json"},
        "hosting": {"public": "public"},
        "emulators": {**emulators, "ui": {"enabled": False}},
    }


def put_in(folder: Path, config: dict[str, Any]) -> None:
    """The guide's steps. This repository stays where it is, and is named from there."""
    # What a developer has in `.env.local` does not count: its settings are read from elsewhere.
    (folder / "settings").mkdir()
    (folder / "settings" / ".env").write_text((ROOT / ".env").read_text())
    ours = {**OURS["functions"], "source": os.path.relpath(ROOT, folder), "configDir": "settings"}
    config["functions"].append(ours)
    merge = [sys.executable, "-m", "dev.merge_indexes", str(folder / "firestore.indexes.json")]
    subprocess.run(merge, cwd=ROOT, check=True, capture_output=True)
    rules = (ROOT / "firestore.rules").read_text()
    block = re.search(r"    // --- agent-turns\b.*// --- end of agent-turns\n", rules, re.DOTALL)
    assert block is not None
    (folder / "firestore.rules").write_text(THEIR_RULES % block[0])


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as came:
            return int(came.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code
    except OSError:
        return 0


def not_ready(shop: Shop) -> str | None:
    """What the suite lacks yet; None when both codebases answer."""
    came = status_of(shop.function("hello"))
    return f"hello: {came}" if came != 200 else answer("start_turn", shop.ports["functions"])


def test_theirs_answers_as_before(shop: Shop) -> None:
    """Beside ours, out of its own codebase."""
    with urllib.request.urlopen(shop.function("hello"), timeout=PATIENCE_SECONDS) as came:
        assert came.read() == b"hello from the shop"


def test_a_turn_runs_in_their_project(shop: Shop) -> None:
    """From the codebase that was added."""
    turn_id, body = new_turn_id(), json.dumps({"prompt": "rate=1000 silence=0 words=9"}).encode()

    def attempt() -> RawStream:
        given = headers(turn_id, uid="a-buyer", Content_Type="application/json")
        return RawStream(shop.function("start_turn"), "POST", given, body)

    with asked_again(attempt) as stream:
        stream.read_to_end()
        state = folded(stream)
    assert state.ended is not None
    assert len(state.text.split()) == 14


def test_their_rules_and_indexes_stand(shop: Shop) -> None:
    """Clients read what they could, and nothing of ours; no index and no policy is lost."""
    assert shop.read("products") == 200
    assert shop.read("agent_turns") == 403
    merged = json.loads((shop.folder / "firestore.indexes.json").read_text())
    assert merged["indexes"][0] == THEIR_INDEXES["indexes"][0]
    assert merged["fieldOverrides"][0] == THEIR_INDEXES["fieldOverrides"][0]
    ours = json.loads((ROOT / "firestore.indexes.json").read_text())
    assert merged["fieldOverrides"][1:] == ours["fieldOverrides"]
