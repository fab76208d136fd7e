"""The Emulator Suite as `make dev` and the tests start it, with a project of a few lines."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev import processes, suite
from dev.ports import free_port
from dev.project import FIREBASE_TOOLS, ROOT, read
from tests.support.patience import PATIENCE_SECONDS, wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.emulator,
    pytest.mark.timeout(400),
    pytest.mark.usefixtures("firestore_emulator"),  # Skips, or fails in CI, where there is none.
]

_MAIN = """
import json, os
from firebase_functions import https_fn
from functions import word

def answer(request):
    settings = {name: os.environ.get(name) for name in ("ALL", "PROJECT", "TEST", "MACHINE")}
    return https_fn.Response(json.dumps({"word": word.WORD, **settings}))

@https_fn.on_request()
def start_turn(request):
    return answer(request)

@https_fn.on_request()
def resume_turn(request):
    return answer(request)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder that holds a tiny project in place of ours, with our set-up and tooling."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "dev", root / "dev", ignore=shutil.ignore_patterns("node_modules"))
    (root / "dev" / "firebase-tools" / "node_modules").symlink_to(FIREBASE_TOOLS / "node_modules")
    for name in ("venv", "client", "page", "tests"):
        (root / name).symlink_to(ROOT / name)
    for name in ("Makefile", "firebase.json", "firestore.rules", "requirements.txt"):
        shutil.copy(ROOT / name, root)
    (root / "public").mkdir()
    (root / "public" / "index.html").write_text("a page")
    (root / "functions").mkdir()
    (root / "functions" / "word.py").write_text("WORD = 'first'\n")
    (root / "main.py").write_text(_MAIN)
    (root / ".env").write_text("ALL=of all\nPROJECT=of all\nTEST=of all\n")
    (root / ".env.demo-agent-turns").write_text("PROJECT=of the project\nTEST=of the project\n")
    (root / ".env.local").write_text("MACHINE=of this machine\n")
    return root


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as response:
        body: bytes = response.read()
    return body


def test_a_suite_serves_reloads_and_leaves_nothing(project: Path) -> None:
    odd = 'a "quoted" \\ word, a # and a\nnewline'
    with suite.running(project, settings={"TEST": odd}) as running:
        assert json.loads(get(running.function("start_turn"))) == {
            "word": "first",
            "ALL": "of all",
            "PROJECT": "of the project",
            "TEST": odd,
            "MACHINE": None,
        }
        assert get(running.hosting) == b"a page"

        # The rules are loaded: a client, who has no credentials, gets no document.
        documents = f"http://{running.host('firestore')}/v1/projects/{running.project}/databases/(default)/documents"
        for path in (
            "turns/a",
            "agent_turns/a/agent_turn_events/0",
            "sessions/a",
            "app_check_tokens/a",
            "demo_tickets/a",
            "other/a",
        ):
            with pytest.raises(urllib.error.HTTPError) as refusal:
                get(f"{documents}/{path}")
            refusal.value.close()
            assert refusal.value.code == 403

        # An edit takes effect.
        def loads() -> int:
            return running.log.read_text().count("Loaded functions definitions")

        before = loads()
        (project / "functions" / "word.py").write_text("WORD = 'second'\n")
        wait_until(lambda: b"second" in get(running.function("start_turn")))
        wait_until(lambda: loads() > before)

        # A file that is not deployed starts no reload.
        before = loads()
        (project / "dev" / "setup.py").touch()
        (project / "public" / "index.html").write_text("another page")
        time.sleep(3)
        assert loads() == before

        assert processes.marked(running.mark)
    assert processes.marked(running.mark) == []
    assert not running.log.parent.exists()


def test_functions_that_do_not_load_end_the_suite_with_their_error(project: Path) -> None:
    (project / "main.py").write_text("import a_module_that_is_not_there\n")
    with (
        pytest.raises(RuntimeError, match="a_module_that_is_not_there"),
        suite.running(project),
    ):
        pytest.fail("it got ready")


def test_a_killed_test_run_leaves_no_process(project: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from dev import suite\n"
        "with suite.running(Path(sys.argv[1])) as running:\n"
        "    print(running.mark, flush=True); time.sleep(300)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(project)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(project.parent)},  # Its files stay behind.
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        mark = run.stdout.readline().strip()
        assert mark
        assert len(processes.marked(mark)) > 3
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: processes.marked(mark) == [])


@dataclass(frozen=True)
class Terminal:
    """`make dev` in a terminal of its own: its descriptor, a mark of its processes, its words."""

    descriptor: int
    run: str
    words: str


@pytest.fixture
def terminal(project: Path) -> Iterator[Terminal]:
    """Run `make dev` in a terminal of its own until it is ready, while no other suite starts."""
    config = read(project).config
    for name, port in suite.choose_ports().items():
        if name == "websocket":
            config["emulators"]["firestore"]["websocketPort"] = port
        else:
            config["emulators"].setdefault(name, {})["port"] = port
    (project / "firebase.json").write_text(json.dumps(config))
    with (project / ".env.demo-agent-turns").open("a") as settings:
        settings.write(f"DEMO_PAYMENTS_URL=http://127.0.0.1:{free_port()}\n")
    run = uuid.uuid4().hex
    with suite.one_at_a_time():
        pid, descriptor = pty.fork()
        if pid == 0:
            os.chdir(project)
            os.environ["AGENT_TURNS_TEST"] = run
            os.execlp("make", "make", f"PYTHON={sys.executable}", "dev")
        try:
            words = read_until(descriptor, "Ctrl-C here ends everything", 200)
        except BaseException:
            end_all(run)
            raise
    yield Terminal(descriptor, run, words)
    end_all(run)
    os.waitpid(pid, 0)


def end_all(run: str) -> None:
    for each in processes.carrying("AGENT_TURNS_TEST", run):
        os.kill(each, signal.SIGKILL)


def read_until(descriptor: int, pattern: str, seconds: float) -> str:
    words = ""
    deadline = time.monotonic() + seconds
    while not re.search(pattern, words):
        assert time.monotonic() < deadline, words
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                words += os.read(descriptor, 65536).decode(errors="replace")
            except OSError:  # nobody writes there any more
                pytest.fail(f"it ended by itself:\n{words}")
    return words


@pytest.mark.parametrize("end", ["Ctrl-C", "closing the terminal"])
def test_make_dev_prints_lines_that_work_and_ends_without_a_trace(
    project: Path, terminal: Terminal, end: str
) -> None:
    lines = re.findall(r"^ +(curl .*?)\r?$", terminal.words, re.MULTILINE)
    answers = [
        subprocess.run(
            ["bash", "-c", line],
            cwd=project,
            capture_output=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        ).stdout
        for line in lines[:4]
    ]
    assert [json.loads(answer)["word"] for answer in answers[:2]] == ["first", "first"]
    assert json.loads(answers[2]) == {}  # Firestore's: no tickets
    assert json.loads(answers[3])["effects"] == []  # the payment server's
    if end == "Ctrl-C":
        os.write(terminal.descriptor, b"\x03")
    else:
        os.close(terminal.descriptor)
    wait_until(lambda: processes.carrying("AGENT_TURNS_TEST", terminal.run) == [])
