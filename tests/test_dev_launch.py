"""What a stack is started with, and what it prints: the parts that start nothing."""

from pathlib import Path

from dev import launch, suite
from dev.project import EMULATORS, ROOT, read


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
    lines = [line for line in launch.lines_to_paste(5001, "a-turn").splitlines() if "curl" in line]
    assert len(lines) == 2
    for line in lines:
        assert "$(python3 -m dev.token)" in line
        assert "'X-Stream-Turn-Id: a-turn'" in line
    assert "/start_turn " in lines[0]
    assert "/resume_turn " in lines[1]
    assert "Last-Event-ID: 20" in lines[1]
