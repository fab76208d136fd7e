"""The guides' code runs as it stands there, and survives a killed container."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from functions.agents import demo
from tests.conftest import PROJECT
from tests.support.gemini import Asked, Gemini, Reply, call, says
from tests.support.kit import CrashPoint, Kit
from tests.support.server import FunctionServer

# `storage` warms the emulator up: its first call takes longer than a container's lease.
pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

ROOT = Path(__file__).parents[1]

# What a reader has of their own: a payment provider, a fax machine with a log, a model.
CLIENTS = {
    "payments": """
import os
from pathlib import Path

def charge(order, cents, key):
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"charge {key}\\n")
    return {"order": order, "cents": cents}
""",
    "fax": """
import os
from pathlib import Path

def send(number, text, note):
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"fax {note}\\n")
    return {"number": number}

def find(note):
    log = Path(os.environ["EFFECTS"])
    found = log.exists() and f"fax {note}" in log.read_text()
    return {"number": "found"} if found else None
""",
    "your_sdk": """
def stream(prompt):
    yield from ("You ", "said ", prompt)
""",
}

# What stands in functions/agents/__init__.py above what a reader puts there.
STANDS_ABOVE = """
from functions.agents import GEMINI_API_KEY
from functions.turns.program import Agent
"""
SERVES_THEIR_OWN = """
def own():
    import brought_own
    return brought_own.own_agent
"""


def blocks(guide: str, language: str) -> list[str]:
    """The code of a guide in one language, in its order."""
    text = (ROOT / "docs" / "guides" / guide).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def code_of(guide: str) -> str:
    """All Python of a guide."""
    return "\n\n".join(blocks(guide, "python"))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Both guides' code as modules, beside what a reader has."""
    for name, code in CLIENTS.items():
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "guide_tool.py").write_text(code_of("tool.md"))
    (tmp_path / "guide_agent.py").write_text(code_of("agent.md"))
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    return {"PYTHONPATH": path, "EFFECTS": str(tmp_path / "effects")}


def block_of(guide: str, name: str) -> str:
    """The Python of a guide that names itself so in its first line."""
    text = (ROOT / "docs" / "guides" / guide).read_text()
    found = re.search(rf"```python\n(# {re.escape(name)}.*?)```", text, flags=re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def brought(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The agents of "Bring your agent", each as the module that the guide calls it."""
    for name in ("shop", "own"):
        code = block_of("bring-your-agent.md", f"functions/agents/{name}.py")
        (tmp_path / f"brought_{name}.py").write_text(code)
    serving = block_of("bring-your-agent.md", "functions/agents/__init__.py, from SECRETS on")
    served = serving.replace("from functions.agents import shop", "import brought_shop as shop")
    assert served != serving
    (tmp_path / "brought.py").write_text(f"{STANDS_ABOVE}\n{served}\n{SERVES_THEIR_OWN}")
    return {**environ, "GEMINI_API_KEY": "a-key", "LEASE_SECONDS": "2"}


def sells(asked: Asked) -> Reply:
    """A model that looks an order up, charges it, wants to refund it, and says so."""
    return [
        says("I look. ", call("look_up", order="A-17"), call("charge", order="A-17", cents=1900)),
        says("And back. ", call("refund", order="A-17", cents=1900)),
        says("All ", "done."),
    ][asked.responses]


@pytest.mark.parametrize(
    ("point", "step"),
    [
        (None, 1),
        (CrashPoint.BEFORE_OUTCOME_COMMIT, 3),
        (CrashPoint.AFTER_DECISION, 5),
    ],
)
def test_the_pydantic_agent_of_the_guide_survives(
    firestore_emulator: str, brought: dict[str, str], point: CrashPoint | None, step: int
) -> None:
    """Each model response is asked for once, the charge and the refund have one key each."""
    with (
        Gemini(sells) as model,
        Kit(
            "brought:agent",
            storage=firestore_emulator,
            **brought,
            GOOGLE_GEMINI_BASE_URL=model.url,
        ) as kit,
    ):
        run = kit.run("Order A-17", crash_at=point, step=step, decisions={5: "approve"}, timeout=60)
        asked = [one.responses for one in model.asked]
    assert run.text == "I look. \n\nAnd back. \n\nAll done."
    assert run.outcomes == {2: "ok", 3: "ok", 5: "ok"}
    assert asked == [0, 1, 2]
    assert run.events[-1].data["usage"] == {"inputTokens": 30, "outputTokens": 15, "requests": 3}
    assert set(effects(brought)) == {"charge 3", "charge 5"}


def test_the_own_callable_of_the_guide_runs(
    firestore_emulator: str, brought: dict[str, str]
) -> None:
    """And says what it used."""
    with Kit("brought:own", storage=firestore_emulator, **brought) as kit:
        run = kit.run("hello")
    assert run.text == "You said hello"
    assert run.events[-1].data["usage"] == {"outputTokens": 3}


def effects(environ: dict[str, str]) -> list[str]:
    """What took effect outside, without the turn's name."""
    lines = Path(environ["EFFECTS"]).read_text().splitlines()
    return sorted(re.sub(r" .*:", " ", line) for line in lines)


def test_the_tools_of_the_guide_run(firestore_emulator: str, environ: dict[str, str]) -> None:
    """One of each policy, two of them side by side."""
    with Kit("guide_tool:agent", storage=firestore_emulator, **environ) as kit:
        run = kit.run("broken")
    assert run.text == "ticket ok, charge ok, fax ok, 1900 cents"
    assert effects(environ) == ["charge 2", "fax 3"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, ["charge 2", "fax 3"]),
        (2, ["charge 2", "charge 2", "fax 3"]),
        (3, ["charge 2", "fax 3"]),
    ],
)
def test_each_policy_of_the_guide_holds_in_a_crash(
    firestore_emulator: str, environ: dict[str, str], step: int, expected: list[str]
) -> None:
    """Killed before the outcome is recorded: a ticket once, a charge again with its key, and the
    fax found in the log instead of sent again."""
    with Kit("guide_tool:agent", storage=firestore_emulator, **environ) as kit:
        run = kit.run("broken", crash_at=CrashPoint.BEFORE_OUTCOME_COMMIT, step=step)
    assert run.text == "ticket ok, charge ok, fax ok, 1900 cents"
    # Steps 2 and 3 run side by side: the other one may have been called again, too, or found.
    assert set(effects(environ)) == set(expected)
    assert effects(environ).count("fax 3") == 1


def test_the_agent_of_the_guide_runs(firestore_emulator: str, environ: dict[str, str]) -> None:
    """Its model call streams, and its response is told."""
    with Kit("guide_agent:agent", storage=firestore_emulator, **environ) as kit:
        run = kit.run("hello")
    assert run.text.startswith("Thinking … You said hello\n(3 tokens)")


def test_the_readme_shows_what_its_lines_print() -> None:
    """The demo says the same to the same prompt; the event after the cursor is the one shown."""
    readme = (ROOT / "README.md").read_text()
    prompt = re.findall(r'-d \'{"prompt": "(.*?)"}\'', readme)[0]
    cursor = int(re.findall(r"Last-Event-ID: (\d+)", readme)[0])
    shown = re.findall(r"id: (\d+)\nevent: token\ndata: (.*)\n", readme)[0]
    said = ["Let", " me", " think", " about", " that.\n\n", *demo.tokens(prompt, 240)]
    assert shown == (str(cursor + 1), json.dumps(said[cursor]))


FUNCTIONS = """
import main
from functions.endpoints.service import Service
from guide_sessions import agent
from main import delete_turns, start_turn, turn_sessions

main.service = Service(agent)
"""


def test_the_sessions_guide_runs(firestore_emulator: str, tmp_path: Path) -> None:
    """Its agent sees the first question with the second; its lines list, read and delete."""
    (tmp_path / "guide_sessions.py").write_text(code_of("sessions.md"))
    (tmp_path / "functions_of_guide.py").write_text(FUNCTIONS)
    environ = {
        "SOURCE": str(tmp_path / "functions_of_guide.py"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    lines = "\n".join(blocks("sessions.md", "sh")).replace("python3 -m", f"{sys.executable} -m")
    with ExitStack() as stack:
        for target in ("start_turn", "turn_sessions", "delete_turns"):
            server = FunctionServer(target, firestore_emulator, PROJECT, environ)
            lines = lines.replace(f"$at/{target}", stack.enter_context(server).url)
        lines = lines.replace("curl -s", "curl --fail -w '\\n' -s")
        lines = lines.replace("--uid ada", f"--uid {uuid.uuid4()}")  # other tests have an ada
        ran = subprocess.run(
            ["bash", "-eu", "-c", lines], cwd=ROOT, capture_output=True, text=True, check=True
        )
    text = ran.stdout
    answers = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert "Question 1: Where is it warm in May?" in text
    assert "Question 2: And in June?" in text
    listed, read, session, turn, everything = answers
    assert [one["sessionId"] for one in listed["sessions"]] == ["holiday"]
    assert read["history"][1]["messages"][1]["content"] == "Question 2: And in June?"
    assert session == {"more": False}
    assert turn == {"turns": 1, "sessions": 0, "more": False}
    assert everything == {"turns": 1, "sessions": 0, "more": False}
