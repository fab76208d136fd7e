"""Metrics: what is defined is logged, and what is shown is defined; lines follow a turn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from functions.turns.durations import Durations
from tests.conftest import Serve
from tests.support.client import cancel, error_of, folded, new_turn_id, resume, start
from tests.support.lapse import lapse_turn
from tests.support.patience import wait_until
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

ROOT = Path(__file__).parents[1]
MONITORING = ROOT / "docs" / "monitoring"
TYPE = re.compile(r"logging\.googleapis\.com/user/(\w+)")
MESSAGE = re.compile(r'jsonPayload\.message=(?:"([^"]+)"|\(([^)]+)\))')
FIELD = re.compile(r"EXTRACT\(jsonPayload\.(\w+)\)")

Line = dict[str, Any]


def metrics() -> dict[str, Any]:
    """The definitions, by name."""
    return {
        path.stem: yaml.safe_load(path.read_text())
        for path in sorted((MONITORING / "metrics").glob("*.yaml"))
    }


def messages(logging_filter: str) -> set[str]:
    """The messages that a filter selects."""
    match = MESSAGE.search(logging_filter)
    assert match is not None, logging_filter
    return {match[1]} if match[1] else set(re.findall(r'"([^"]+)"', match[2]))


def code_of_refusal(stream: RawStream) -> str:
    """Of a refused request."""
    with stream:
        return str(error_of(stream)["code"])


def said(server: FunctionServer, message: str) -> int:
    """How often it has logged that."""
    return sum(line["message"] == message for line in server.log_lines())


@pytest.fixture
def troubled(serve: Serve, storage: None, tmp_path: Path) -> tuple[str, list[Line], list[Line]]:
    """A turn with everything: killed in a tool, taken over, followed, stopped, refused.

    Its id, the lines of its first container, and those of all others.
    """
    assert storage is None
    effects, hold, turn_id = tmp_path / "effects", tmp_path / "hold", new_turn_id()
    hold.touch()
    script = [
        ["say", "a"],
        ["tools", ["once", {"path": str(effects), "hold": str(hold)}]],
        ["count", 1, 10_000, 40],
    ]
    first = serve("start_turn")
    second, third = (serve("resume_turn") for _ in range(2))
    with start(first, turn_id, script) as stream:
        stream.read_until("tool_start")
        wait_until(effects.exists)
        before = first.log_lines()
        first.kill()
    lapse_turn(turn_id)
    with resume(second, turn_id) as owner:
        owner.read_until("rewind")
        with resume(third, turn_id) as follower:
            follower.read_until(40)
            canceller = serve("cancel_turn")
            assert cancel(canceller, turn_id) == "cancelled"
            follower.read_to_end()
        owner.read_to_end()
    assert code_of_refusal(resume(third, "bad")) == "bad_turn_id"
    short, failing = new_turn_id(), new_turn_id()
    drained = serve("start_turn")
    with start(drained, short, [["say", "x"]]) as stream:
        stream.read_to_end()
    with start(drained, failing, [["say", "x"], ["sleep", 0.5], ["raise", "no"]]) as stream:
        stream.read_to_end()
    with start(drained, new_turn_id(), [["count", 1, 10_000, 20]]) as stream:
        stream.read_until(2)
        drained.terminate()
        drained.wait()
        stream.read_to_end()
        assert not folded(stream).ended
    wait_until(lambda: said(second, "owner ended") == 1)
    wait_until(lambda: said(second, "stream ended") == said(third, "stream ended") == 1)
    lines = [line for one in (second, third, canceller, drained) for line in one.log_lines()]
    return turn_id, before, lines


@pytest.mark.emulator
@pytest.mark.timeout(240)
def test_every_metric_finds_its_line_and_its_fields(
    troubled: tuple[str, list[Line], list[Line]],
) -> None:
    """Of a run in which everything happened."""
    _turn_id, before, after = troubled
    for name, metric in metrics().items():
        wanted = messages(metric["filter"])
        there = [line for line in (*before, *after) if line["message"] in wanted]
        assert {line["message"] for line in there} == wanted, name
        for field in FIELD.findall(json.dumps(metric)):
            having = [line for line in there if field in line]
            assert having, f"{name}: no line has {field}"
            if "valueExtractor" in metric and field in metric["valueExtractor"]:
                assert all(isinstance(line[field], (int, float)) for line in having)
                assert all(line[field] >= 0 for line in having)
                assert f"jsonPayload.{field}>=0" in metric["filter"]


@pytest.mark.emulator
@pytest.mark.timeout(240)
def test_the_lines_of_a_turn_follow_it_over_its_containers(
    troubled: tuple[str, list[Line], list[Line]],
) -> None:
    """Each names turn, run and request; an owner's also its epoch."""
    _turn_id, before, after = troubled
    (began,) = [line for line in before if line["message"] == "turn started"]
    took = next(line for line in after if line["message"] == "took over")
    assert (took["turn"], took["run"]) == (began["turn"], began["run"])
    assert (took["epoch"], took["correlationId"] != began["correlationId"]) == (2, True)
    told = [line for line in (*before, *after) if line.get("turn") == began["turn"]]
    assert {line["message"] for line in told} >= {
        "turn started", "stream opened", "stream ended", "stream attached", "took over",
        "step in doubt", "lease lost", "owner ended", "turn cancelled",
    }  # fmt: skip
    for line in told:
        assert line["run"] == began["run"], line
        assert line["correlationId"], line
        if line["message"] in {"took over", "step in doubt", "lease lost", "owner ended"}:
            assert line["epoch"] >= 2, line


def test_definitions_are_what_cloud_logging_takes() -> None:
    """Distributions have a value, counters none; each extracted label is declared."""
    assert metrics()
    for name, metric in metrics().items():
        assert name.startswith("agent_turns_")
        assert set(metric) <= {
            "description", "filter", "metricDescriptor", "valueExtractor", "labelExtractors",
            "bucketOptions",
        }  # fmt: skip
        descriptor = metric["metricDescriptor"]
        assert descriptor["metricKind"] == "DELTA"
        distribution = descriptor["valueType"] == "DISTRIBUTION"
        assert distribution == ("valueExtractor" in metric) == ("bucketOptions" in metric)
        assert {label["key"] for label in descriptor["labels"]} == set(metric["labelExtractors"])


def test_dashboard_and_alerts_show_what_is_defined() -> None:
    """Every metric is on the dashboard; every alert has one, and its section in the guide."""
    dashboard = (MONITORING / "dashboard.json").read_text()
    tiles = json.loads(dashboard)["mosaicLayout"]["tiles"]
    assert set(TYPE.findall(dashboard)) == set(metrics())
    assert all(tile["xPos"] + tile["width"] <= 48 for tile in tiles)
    guide = (ROOT / "docs" / "guides" / "operate.md").read_text()
    alerts = [yaml.safe_load(one.read_text()) for one in (MONITORING / "alerts").glob("*.yaml")]
    assert alerts
    for alert in alerts:
        (condition,) = alert["conditions"]
        (metric,) = TYPE.findall(condition["conditionThreshold"]["filter"])
        assert metric in metrics()
        assert f"### {condition['displayName']}\n" in guide


def test_the_document_lists_every_metric_with_its_line_and_field() -> None:
    """And none that is not there."""
    rows = [
        [set(re.findall(r"`([^`]+)`", cell)) for cell in line.split("|")[1:4]]
        for line in (ROOT / "docs" / "metrics.md").read_text().splitlines()
        if line.startswith("| `agent_turns_")
    ]
    told = {name.pop(): (lines, fields) for name, lines, fields in rows}
    defined = {
        name: (messages(metric["filter"]), set(FIELD.findall(json.dumps(metric))))
        for name, metric in metrics().items()
    }
    assert told == defined


def test_durations_are_mean_and_longest() -> None:
    """Nothing is told of what never took place."""
    durations = Durations()
    assert durations.fields("flush") == {}
    for seconds in (0.1, 0.2, 0.6):
        durations.add(seconds)
    assert durations.fields("flush") == {"flushSeconds": 0.3, "flushSecondsMost": 0.6}
