"""What a stack is started with, and what it prints: the parts that start nothing."""

import re
import socket
from pathlib import Path

import pytest

from dev import launch, suite
from dev.project import EMULATORS, LOCAL_PROJECT, ROOT, ProblemError, Project, read
from functions.agents import demo_tools


def test_the_generated_configuration_differs_in_places_and_ports_only(tmp_path: Path) -> None:
    ours = read().config
    ports = suite.choose_ports()
    made = suite.config_on(ours, folder=tmp_path, root=ROOT, ports=ports)
    assert (tmp_path / made["functions"]["source"]).resolve() == ROOT
    assert made["functions"]["ignore"] == ours["functions"]["ignore"]
    assert made["functions"]["runtime"] == ours["functions"]["runtime"]
    assert Path(made["firestore"]["rules"]) == ROOT / "firestore.rules"
    assert {made["emulators"][name]["port"] for name in EMULATORS} <= set(ports.values())
    assert len(set(ports.values())) == len(ports)


def test_the_lines_to_paste_name_one_turn_and_a_fresh_token_each() -> None:
    text = launch.lines_to_paste(read(), "a-turn", "another")
    lines = re.findall(r"^  (curl .+)$", text, re.MULTILINE)
    start, resume, tickets, effects, cancel, ask, decide = lines
    for turn, calls in (("a-turn", (start, resume, cancel)), ("another", (ask, decide))):
        for line in calls:
            assert "$(python3 -m dev.token)" in line
            assert "Bearer $(python3 -m dev.token --uid me)" in line
            assert f"'X-Stream-Turn-Id: {turn}'" in line
    assert "/start_turn " in start
    assert "query=20" in start
    assert "/resume_turn " in resume
    assert "Last-Event-ID: 3" in resume
    assert tickets.endswith(f"/{demo_tools.TICKETS}'")
    assert effects == "curl http://127.0.0.1:5005/effects"
    assert "/cancel_turn " in cancel
    assert "-X POST" in cancel
    assert "/start_turn " in ask
    assert "/run_tool_step " in decide
    assert '{"step": 2, "decision": "approve"}' in decide


def test_without_a_payment_server_no_line_asks_it(tmp_path: Path) -> None:
    project = Project(tmp_path, read().config)
    assert "/effects" not in launch.lines_to_paste(project, "a-turn", "another")


def test_a_port_that_is_taken_is_refused_with_the_place_to_change_it(tmp_path: Path) -> None:
    ports = suite.choose_ports()
    config = {"emulators": {name: {"port": ports[name]} for name in EMULATORS}}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / f".env.{LOCAL_PROJECT}").write_text(
            f"DEMO_PAYMENTS_URL=http://127.0.0.1:{port}\n"
        )
        with pytest.raises(ProblemError, match=rf"{port} is taken.*DEMO_PAYMENTS_URL"):
            launch._refuse_taken_ports(Project(tmp_path, config))
