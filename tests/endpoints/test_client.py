"""The TypeScript client, from Node.js, on the real functions."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from dev import node
from tests.conftest import PROJECT, Serve
from tests.support.client import folded, new_turn_id, resume
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.usefixtures("storage"),
    pytest.mark.timeout(180),
]

FUNCTIONS = ("start_turn", "resume_turn", "run_tool_step", "cancel_turn")


class Follower:
    """A client of a process of its own, and what it told so far."""

    def __init__(self, program: Path, orders: dict[str, Any]) -> None:
        self.told: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [node.locate(), str(program), json.dumps(orders)], stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def until(self, reached: Callable[[dict[str, Any]], bool]) -> None:
        """Listen up to an entry; AssertionError if the client ends before."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told.append(json.loads(line))
            if reached(self.told[-1]):
                return
        raise AssertionError(f"the client ended without: {self.told[-3:]}")

    def view(self) -> dict[str, Any]:
        """The turn at its end, as the client shows it."""
        self.until(lambda entry: "status" in entry and "kind" not in entry)
        return self.told[-1]

    def calls(self) -> list[str]:
        """The functions that it called."""
        return [entry["call"] for entry in self.told if entry.get("kind") == "request"]


@pytest.fixture(scope="module")
def program() -> Path:
    """The client and what drives it, compiled."""
    node.ensure_packages(node.CLIENT, "the client's packages")
    subprocess.run([node.npm(), "run", "compile"], cwd=node.CLIENT, check=True, stdout=sys.stderr)
    return node.CLIENT / "build" / "tests" / "support" / "drive.js"


Follow = Callable[..., Follower]


@pytest.fixture
def urls(serve: Serve) -> dict[str, str]:
    """A process of each function."""
    return {name: serve(name).url for name in FUNCTIONS}


@pytest.fixture
def follow(program: Path, urls: dict[str, str]) -> Iterator[Follow]:
    """Start a client: `follow(turn_id, script, cuts=[100])`; without a script it resumes."""
    with ExitStack() as stack:

        def start(
            turn_id: str, script: Sequence[object] | None = None, **orders: object
        ) -> Follower:
            functions = {**urls, **orders.pop("functions", {})}  # type: ignore[dict-item]
            prompt = None if script is None else json.dumps(script)
            defaults: dict[str, object] = {"cuts": [], "decision": None, "stopAfter": None}
            asked = {"functions": functions, "project": PROJECT, "turnId": turn_id}
            given = {**asked, "prompt": prompt, **defaults, **orders}
            return stack.enter_context(Follower(program, given))

        yield start


def journal_text(turn_id: str, urls: dict[str, str]) -> str:
    """The fold of the journal, by the reference."""
    with resume(urls["resume_turn"], turn_id, 0) as stream:
        stream.read_to_end()
        return folded(stream).text


def test_a_turn_that_is_cut_at_random_bytes_ends_with_the_text_of_its_journal(
    follow: Follow, urls: dict[str, str]
) -> None:
    """One start that counts, resumes from there; nothing lost, nothing twice."""
    choose = random.Random(5)
    turn_id = new_turn_id()
    cuts = [choose.randrange(15, 1500) for _ in range(20)]
    script = [["model", "one", [["count", 1, 100, 200]], 1], ["count", 101, 300, 200]]
    client = follow(turn_id, script, cuts=cuts)
    view = client.view()
    assert (view["status"], view["end"]) == ("done", "stop")
    assert view["text"] == journal_text(turn_id, urls)
    assert client.calls().count("resume_turn") >= 10


def test_a_killed_owner_costs_the_client_nothing(
    follow: Follow, serve: Serve, urls: dict[str, str], gate: Gate
) -> None:
    """It resumes elsewhere, follows the rewind, and ends with the text of the journal."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    counting = [["count", 21, 50, 0], gate.action, ["count", 51, 120, 0]]
    script = [["model", "one", [["count", 1, 20, 100]], 1], *counting]
    client = follow(turn_id, script, functions={"start_turn": owner.url})
    client.until(lambda entry: entry.get("kind") == "event" and entry["event"]["id"] >= 40)
    owner.kill()
    lapse_turn(turn_id)
    gate.open()
    view = client.view()
    assert (view["status"], view["rewinds"]) == ("done", 1)
    assert view["text"] == journal_text(turn_id, urls)


@pytest.mark.parametrize(
    ("decision", "status", "effects"), [("approve", "ok", 1), ("deny", "denied", 0)]
)
def test_a_decision_is_recorded_and_the_turn_goes_on(
    follow: Follow, tmp_path: Path, decision: str, status: str, effects: int
) -> None:
    """Two steps that wait are decided one after the other; each runs once, or not at all."""
    paths = [tmp_path / "one", tmp_path / "two"]
    refunds = [["refund", {"path": str(path)}] for path in paths]
    script = [["say", "A"], ["tools", *refunds], ["say", "B"]]
    view = follow(new_turn_id(), script, decision=decision, cuts=[60, 60, 60]).view()
    assert (view["status"], view["pending"]) == ("done", [])
    assert [step["status"] for step in view["steps"]] == [status, status]
    for path in paths:
        assert len(path.read_text().splitlines() if path.exists() else []) == effects


def test_a_stop_ends_the_turn_for_two_clients(follow: Follow) -> None:
    """The one that stopped it and the one that only follows."""
    turn_id = new_turn_id()
    stopper = follow(turn_id, [["count", 1, 3000, 30]], stopAfter=15)
    stopper.until(lambda entry: entry.get("kind") == "event")
    other = follow(turn_id)
    for client in (stopper, other):
        assert client.view()["status"] == "cancelled"
    assert "cancel_turn" not in other.calls()


def test_a_refusal_ends_it_with_the_code_of_the_protocol(follow: Follow) -> None:
    """No such turn; and an agent that fails at once."""
    view = follow(new_turn_id()).view()
    assert (view["status"], view["error"]["code"]) == ("error", "unknown_turn")
    view = follow(new_turn_id(), [["fail", "a secret"]]).view()
    assert (view["status"], view["error"]["code"]) == ("error", "agent_failed")
    assert "secret" not in json.dumps(view["error"])
