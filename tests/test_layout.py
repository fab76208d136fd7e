"""The layers hold: who may import whom, and what importing `main` may do."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "functions"

BASE = {"settings", "secrets", "errors", "logs", "firestore"}
MAY_IMPORT = {
    "endpoints": {"endpoints", "identity", "turns", "wire"} | BASE,
    "identity": {"identity"} | BASE,
    "turns": {"turns", "wire"} | BASE,
    "wire": {"wire"},
    "agents": {"agents", "firestore", "pydantic_ai", "secrets", "turns.program", "turns.tools"},
    "pydantic_ai": {"pydantic_ai", "turns.program", "turns.tools"},
    "settings": set(),
    "secrets": {"errors", "logs"},
    "errors": set(),
    "logs": set(),
    "firestore": {"errors", "logs", "settings"},
}
PURE = ["wire/events.py", "wire/sse.py", "wire/text.py", "wire/fold.py", "turns/numbering.py"]


def imports(path: Path) -> Iterator[str]:
    """The modules a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "functions":
            yield from (f"functions.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    """Data flows one way: endpoints → identity, turns → wire."""
    layer = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if layer == "__init__":
        return
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "functions" and len(parts) > 1:
            allowed = MAY_IMPORT[layer]
            assert {parts[1], ".".join(parts[1:3])} & allowed, f"{path} imports {module}"
        if parts[0] == "firebase_functions":
            assert parts[1] in {"params", "logger"}, f"{path} imports {module}"


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_have_no_clock_no_chance_and_no_io(name: str) -> None:
    """What decides takes values and returns values."""
    allowed = {"__future__", "collections", "dataclasses", "functions", "json", "re", "typing"}
    assert {module.split(".")[0] for module in imports(PACKAGE / name)} <= allowed


PROBE = """
import os, socket, sys, threading
def refuse(*_): raise AssertionError("network on import")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
open_before = len(os.listdir("/proc/self/fd"))
import main
loaded = [m for m in sys.modules if m.startswith(("google.cloud.firestore", "grpc"))]
assert not loaded, loaded
assert "functions.agents.demo" not in sys.modules
assert threading.active_count() == 1, threading.enumerate()
assert len(os.listdir("/proc/self/fd")) == open_before, "a file or a socket is open"
assert not os.path.exists(f"/proc/self/task/{os.getpid()}/children") or not open(
    f"/proc/self/task/{os.getpid()}/children").read(), "a process was started"
assert not sys.modules["firebase_admin"]._apps, "an app of the Admin SDK was made"
from functions import firestore
assert firestore._client is None
"""


def test_importing_main_does_no_work() -> None:
    """No network, no thread, no client, no agent: discovery and a cold start import it."""
    subprocess.run([sys.executable, "-W", "error", "-c", PROBE], cwd=ROOT, check=True)
