"""Tool steps take effect once; what cannot be known is said."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from functions import firestore
from tests.conftest import Serve
from tests.support.client import decide, folded, new_turn_id, resume, start
from tests.support.firestore_proxy import (
    Answer,
    DropAnswer,
    Fault,
    FirestoreProxy,
    Hang,
    Hold,
    HoldAnswer,
    Predicate,
    Rule,
    touches,
)
from tests.support.gate import Gate
from tests.support.lapse import lapse_turn
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.server import KEPT_SECONDS, SOON_SECONDS, FunctionServer
from tests.support.sse import RawStream

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

STEPS = touches(r"agent_turns/[^/]+/agent_turn_steps/\d+$")
FUNCTIONS = ("start_turn", "resume_turn")
STAY = threading.Event()
"""Never set: a call that is held by it stays where it is."""
SECRET = "sk-secret-1234"


@pytest.fixture
def starter(serve: Serve) -> FunctionServer:
    """A process of `start_turn`."""
    return serve("start_turn")


def run(server: FunctionServer, *actions: list[Any]) -> RawStream:
    """Run a script to its end."""
    stream = start(server, new_turn_id(), [*actions])
    stream.read_to_end()
    return stream


def lines(path: Path) -> list[str]:
    """The effects that took place, each as its idempotency key."""
    return path.read_text().splitlines() if path.exists() else []


def wait_for_line(path: Path) -> None:
    """Wait until an effect took place."""
    wait_until(lambda: bool(lines(path)))


def stand_still(proxy: FirestoreProxy, rule: Rule) -> Rule:
    """Have whoever's commit suffers `rule` come no further: nothing else that it asks from then on
    is answered, so it stays at that point until the test has lost it.
    """
    return proxy.inject("*", Hang(), when=lambda _request: rule.fired > 0)


def lose(owner: FunctionServer, turn_id: str) -> None:
    """Lose the owner for good. Nobody has the turn any more."""
    owner.kill()
    lapse_turn(turn_id)


def test_a_tool_step_tells_its_start_and_its_end(starter: FunctionServer, tmp_path: Path) -> None:
    """With its position, its name, its arguments and its one result."""
    with run(starter, ["tools", ["once", {"path": str(tmp_path / "x")}]]) as stream:
        begin, end, told, done = stream.events()
    assert (begin.event, begin.data["step"], begin.data["tool"]) == ("tool_start", 1, "once")
    assert begin.data["args"] == {"path": str(tmp_path / "x")}
    assert (end.event, end.data["status"], end.data["result"]) == ("tool_end", "ok", {"step": 1})
    assert told.data == '[ok {"step": 1}]'
    assert done.event == "done"


def test_calls_of_one_response_run_side_by_side_in_fixed_positions(
    starter: FunctionServer, tmp_path: Path
) -> None:
    """All three are there before any has ended; each is told as soon as it ends."""
    paths = [tmp_path / name for name in "123"]
    gates = [Gate(tmp_path / f"gate {path.name}") for path in paths]
    calls = [
        ["once", {"path": str(path), "hold": str(gate)}]
        for path, gate in zip(paths, gates, strict=True)
    ]
    with start(starter, new_turn_id(), [["tools", *calls]]) as stream:
        for path in paths:
            wait_for_line(path)
        for told, step in enumerate((2, 3, 1), 4):
            gates[step - 1].open()
            stream.read_until(told)
        stream.read_to_end()
        events = stream.events()
    assert [event.data["step"] for event in events if event.event == "tool_start"] == [1, 2, 3]
    assert [event.data["step"] for event in events if event.event == "tool_end"] == [2, 3, 1]
    assert folded(stream).text == "[" + "; ".join(f'ok {{"step": {n}}}' for n in (1, 2, 3)) + "]"


def test_equal_calls_at_two_positions_are_two_effects(
    starter: FunctionServer, tmp_path: Path
) -> None:
    """Each has its own key."""
    call = ["once", {"path": str(tmp_path / "x")}]
    with run(starter, ["tools", call, call]):
        pass
    keys = lines(tmp_path / "x")
    assert len(keys) == len(set(keys)) == 2
    assert {key.rpartition(":")[2] for key in keys} == {"1", "2"}


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({}, "path"),
        ({"path": 7}, "path"),
        ({"path": "x", "more": 1}, "more"),
        ({"path": None}, "path"),
    ],
)
def test_arguments_that_do_not_fit_are_an_outcome_for_the_model(
    starter: FunctionServer, args: dict[str, Any], named: str
) -> None:
    """The tool is not called; the message names the parameter."""
    with run(starter, ["tools", ["once", args]]) as stream:
        end = next(event for event in stream.events() if event.event == "tool_end")
        assert end.data["status"] == "error"
        assert named in end.data["result"]["message"]
        assert stream.events()[-1].event == "done"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("tool error", "the shop is closed"),
        ("error", "SecretError"),
        ("hard", "CancelledError"),
        ("nan", "JSON cannot carry"),
        ("set", "JSON cannot carry"),
        ("bytes", "JSON cannot carry"),
        ("huge", "at most 524288"),
    ],
)
def test_a_tool_that_fails_is_an_outcome_and_tells_no_secret(
    starter: FunctionServer, kind: str, says: str
) -> None:
    """A clean error that the model can see; the turn goes on."""
    with run(starter, ["tools", ["odd", {"kind": kind}]]) as stream:
        end = next(event for event in stream.events() if event.event == "tool_end")
        assert end.data["status"] == "error"
        assert says in end.data["result"]["message"]
        assert stream.events()[-1].event == "done"
        assert SECRET not in stream.raw.decode()
    assert SECRET not in starter.output()


@pytest.mark.parametrize(("name", "status"), [("slow_once", "in_doubt"), ("slow_again", "timeout")])
def test_a_tool_past_its_time_ends_as_its_policy_says(
    starter: FunctionServer, gate: Gate, name: str, status: str
) -> None:
    """Its late result is not written: one outcome per step."""
    script = [["tools", [name, {"hold": str(gate)}]], gate.action, ["sleep", 0.5]]
    with start(starter, new_turn_id(), script) as stream:
        stream.read_until("tool_end")
        gate.open()
        stream.read_to_end()
        ends = [event for event in stream.events() if event.event == "tool_end"]
        assert [end.data["status"] for end in ends] == [status]
        assert "late" not in folded(stream).text


@pytest.mark.parametrize("burn", [False, True])
def test_a_tool_that_takes_long_keeps_lease_and_wire_alive(serve: Serve, *, burn: bool) -> None:
    """Longer than a lease, blocked or burning CPU: nobody takes over, the wire is alive."""
    server = serve("start_turn", LEASE_SECONDS=SOON_SECONDS, HEARTBEAT_SECONDS="0.5")
    with run(server, ["tools", ["busy", {"seconds": 12, "burn": burn}]]) as stream:
        assert folded(stream).text == '[ok "done"]'
        assert folded(stream).rewinds == 0
        assert stream.pings > 6  # of some twenty, on any machine


FAULTS: dict[str, tuple[Fault, int]] = {
    # point: what befalls which commit of the step
    "before the start commit": (Hold(STAY), 0),
    "after the start commit": (HoldAnswer(STAY), 0),
    "before the outcome commit": (Hold(STAY), 1),
    "after the outcome commit": (HoldAnswer(STAY), 1),
}

LEASES = {"killed": KEPT_SECONDS, "frozen": "6"}
EXPECTED = {
    # point: (effects of `once`, its outcome; calls of `again`, and runs of a transaction's body)
    "before the start commit": (1, "ok", 1),
    "after the start commit": (0, "in_doubt", 1),
    "after the effect": (1, "in_doubt", 2),
    "before the outcome commit": (1, "in_doubt", 2),
    "after the outcome commit": (1, "ok", 1),
}


def came_to(proxy: FirestoreProxy, rule: Rule) -> None:
    """Wait until a commit is held, or applied if only its answer is."""
    answer = any(isinstance(fault, HoldAnswer) for fault in rule.faults)
    proxy.wait_for(
        "Commit", lambda call: call.rule is rule and (call.upstream == "OK" or not answer)
    )


def times_booked(key: str) -> int:
    """How often the effect of a transaction took place."""
    document = firestore.client().collection("effects").document(key).get()
    return int((document.to_dict() or {}).get("count", 0))


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("name", ["once", "again", "booked"])
@pytest.mark.parametrize("point", EXPECTED)
def test_an_owner_lost_at_each_point_of_a_step(  # noqa: PLR0917 - a matrix
    serve: Serve,
    firestore_proxy: FirestoreProxy,
    tmp_path: Path,
    point: str,
    name: str,
    how: str,
) -> None:
    """Another owner finishes the turn; the effects, counted outside, are what the policy says."""
    owner = serve("start_turn", storage=firestore_proxy.address, LEASE_SECONDS=LEASES[how])
    path, hold, turn_id = tmp_path / "effects", tmp_path / "hold", new_turn_id()
    args = {"path": str(path), "hold": str(hold)}
    fault, skipped = FAULTS.get(point, (None, 0))
    if fault is None:
        hold.touch()
    else:
        rule = firestore_proxy.inject("Commit", fault, when=STEPS, times=1, after=skipped)
        hung = stand_still(firestore_proxy, rule)
    script = [["say", "A"], ["tools", [name, args]], ["say", "B"]]
    with start(owner, turn_id, script) as lost:
        if fault is None:
            wait_for_line(path)
        else:
            came_to(firestore_proxy, rule)
        if how == "frozen":  # until its lease is over: it goes by its own clock
            owner.freeze()
        else:
            lose(owner, turn_id)
        hold.unlink(missing_ok=True)
        with resume(serve("resume_turn"), turn_id) as stream:
            stream.read_to_end()
            events, state = stream.events(), folded(stream)
        if how == "frozen":
            if fault is not None:
                firestore_proxy.remove(hung)
            owner.thaw()
            lost.read_to_end()
    once_effects, once_outcome, again_calls = EXPECTED[point]
    keys = lines(path)
    ends = [event.data["status"] for event in events if event.event == "tool_end"]
    assert len(set(keys)) <= 1
    assert len(ends) == 1
    if name == "once":
        assert (len(keys), ends) == (once_effects, [once_outcome])
    else:
        assert (len(keys), ends) == (again_calls, ["ok"])
    if name == "booked":
        assert times_booked(keys[0]) == 1
    told = state.text.removeprefix("A").removesuffix("B")
    assert told.startswith(f"[{ends[0]}")
    assert state.text == f"A{told}B"


@pytest.mark.parametrize(("leave", "status"), [(True, "ok"), (False, "in_doubt")])
def test_a_tool_that_can_find_out_is_asked(
    serve: Serve, firestore_proxy: FirestoreProxy, tmp_path: Path, *, leave: bool, status: str
) -> None:
    """`reconcile` may say that it happened, or that it does not know; it never leads to a call."""
    owner = serve("start_turn", storage=firestore_proxy.address)
    path, turn_id = tmp_path / "effects", new_turn_id()
    rule = firestore_proxy.inject("Commit", HoldAnswer(STAY), when=STEPS, times=1)
    stand_still(firestore_proxy, rule)
    with start(owner, turn_id, [["tools", ["known", {"path": str(path)}]]]) as lost:
        came_to(firestore_proxy, rule)
        lose(owner, turn_id)
        if leave:
            path.touch()
        lost.read_to_end()
    with resume(serve("resume_turn"), turn_id) as stream:
        stream.read_to_end()
        end = next(event for event in stream.events() if event.event == "tool_end")
        assert end.data["status"] == status
    assert lines(path) == []


def test_finished_calls_are_replayed_and_text_is_not_told_twice(
    serve: Serve, tmp_path: Path
) -> None:
    """One of two parallel calls is finished when the owner dies: it is not called again, and what
    was said before both is not said again."""
    owner, turn_id = serve("start_turn"), new_turn_id()
    path, hold, slow = tmp_path / "fast", tmp_path / "hold", tmp_path / "slow"
    hold.touch()
    calls = [
        ["again", {"path": str(slow), "hold": str(hold)}],
        ["once", {"path": str(path)}],
    ]
    script = [["say", "A"], ["model", "m", [["say", "M"]], 1], ["tools", *calls], ["say", "B"]]
    with start(owner, turn_id, script) as lost:
        lost.read_until("tool_end")
        wait_for_line(slow)
        lose(owner, turn_id)
        hold.unlink()
        lost.read_to_end()
    with resume(serve("resume_turn"), turn_id) as stream:
        stream.read_to_end()
        state = folded(stream)
    assert state.text == f"AM[m: 1][ok {json.dumps({'step': 2})}; ok {json.dumps({'step': 3})}]B"
    assert len(lines(path)) == 1
    assert len(lines(slow)) == 2
    assert len(set(lines(slow))) == 1


def test_transactions_that_contend_each_take_effect_once(serve: Serve) -> None:
    """Five turns count one document up, at once: aborted bodies run again, none counts twice."""
    server, document = serve("start_turn"), f"effects/{new_turn_id()}"
    script = [["tools", ["contended", {"document": document}]]]
    streams = [start(server, new_turn_id(), script) for _ in range(5)]
    for stream in streams:
        with stream:
            stream.read_to_end()
            assert folded(stream).text.startswith("[ok ")
    assert firestore.client().document(document).get().to_dict() == {"count": 5}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("exists", "AlreadyExists"),
        ("error", "changed my mind"),
        ("nan", "JSON cannot carry"),
        ("huge", "at most"),
    ],
)
def test_a_transaction_that_cannot_succeed_changes_nothing(
    starter: FunctionServer, kind: str, says: str
) -> None:
    """The outcome is an error that says why; what was staged is not written."""
    document = f"effects/{new_turn_id()}"
    before = {"count": 1} if kind == "exists" else None
    if before:
        firestore.client().document(document).set(before)
    with run(starter, ["tools", ["refused", {"kind": kind, "document": document}]]) as stream:
        end = next(event for event in stream.events() if event.event == "tool_end")
        assert end.data["status"] == "error"
        assert says in end.data["result"]["message"]
        assert stream.events()[-1].event == "done"
    assert firestore.client().document(document).get().to_dict() == before


@pytest.mark.parametrize("fault", [Answer, DropAnswer])
@pytest.mark.parametrize("status", ["ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"])
@pytest.mark.parametrize("call", ["begin", "outcome", "rollback"])
def test_a_transaction_takes_effect_once_whatever_is_answered(  # noqa: PLR0917 - a matrix
    serve: Serve,
    firestore_proxy: FirestoreProxy,
    tmp_path: Path,
    call: str,
    status: str,
    fault: type[Answer | DropAnswer],
) -> None:
    """Answers of begin, commit and roll-back are lost, or say what is not so."""
    server = serve("start_turn", storage=firestore_proxy.address)
    path = tmp_path / "runs"
    if call == "begin":
        firestore_proxy.inject("BeginTransaction", fault(status), times=2)
    else:
        firestore_proxy.inject("Commit", fault(status), when=STEPS, times=1, after=1)
    if call == "rollback":
        firestore_proxy.inject("Rollback", fault(status), times=1)
    with run(server, ["tools", ["booked", {"path": str(path)}]], ["say", "B"]) as stream:
        assert folded(stream).text.startswith('[ok {"step": 1}]')
        assert folded(stream).rewinds == 0
        ends = [event for event in stream.events() if event.event == "tool_end"]
        assert len(ends) == 1
    assert times_booked(lines(path)[0]) == 1


def of_step(position: int, *statuses: str) -> Predicate:
    """Select the commits that write a step with one of the statuses; without any: a decision."""

    def selects(request: Any) -> bool:
        for write in request.writes:
            if write.update.name.endswith(f"/agent_turn_steps/{position:06d}"):
                fields = write.update.fields
                status = fields["status"].string_value if "status" in fields else ""
                return status in statuses if statuses else not status and "decision" in fields
        return False

    return selects


COMMITS = {"start": ("started",), "outcome": ("ok",)}
STATUSES = ["ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"]


@pytest.mark.parametrize("fault", [Answer, DropAnswer])
@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("commit", COMMITS)
def test_a_call_takes_effect_once_whatever_its_commits_are_answered(  # noqa: PLR0917 - a matrix
    serve: Serve,
    firestore_proxy: FirestoreProxy,
    tmp_path: Path,
    commit: str,
    status: str,
    fault: type[Answer | DropAnswer],
) -> None:
    """The commit of a `once` and of an `idempotent` call is refused, or applied and its answer
    lost: one call, one outcome, no lease lost."""
    server = serve("start_turn", storage=firestore_proxy.address)
    calls = [[name, {"path": str(tmp_path / name)}] for name in ("once", "again")]
    rules = [
        firestore_proxy.inject("Commit", fault(status), when=of_step(n, *COMMITS[commit]), times=1)
        for n in (1, 2)
    ]
    with run(server, *[["tools", call] for call in calls], ["say", "B"]) as stream:
        state = folded(stream)
        ends = [event.data["status"] for event in stream.events() if event.event == "tool_end"]
        starts = [event for event in stream.events() if event.event == "tool_start"]
    assert [rule.fired for rule in rules] == [1, 1]
    assert (len(starts), ends, state.rewinds) == (2, ["ok", "ok"], 0)
    assert state.text == '[ok {"step": 1}][ok {"step": 2}]B'
    assert [len(lines(tmp_path / name)) for name in ("once", "again")] == [1, 1]


READS: dict[str, tuple[str, Predicate, int]] = {
    # what a takeover reads: the method, its request, and how many such reads go wrong
    "the turn": ("BatchGetDocuments", touches(r"agent_turns/[^/]+$"), 2),
    "the first chunk": (
        "BatchGetDocuments",
        touches(r"agent_turns/[^/]+/agent_turn_events/0+$"),
        1,
    ),
    "the last chunk": ("RunQuery", lambda request: request.structured_query.limit == 1, 1),
    "the steps": (
        "RunQuery",
        lambda request: request.structured_query.from_[0].collection_id == "agent_turn_steps",
        1,
    ),
}


@pytest.mark.parametrize("status", STATUSES)
def test_a_takeover_whose_reads_fail_makes_no_call_twice(
    serve: Serve, firestore_proxy: FirestoreProxy, tmp_path: Path, status: str
) -> None:
    """The owner dies in the calls. Each read of the next one is refused, and its answer lost when
    it is tried again: what was recorded is still what counts."""
    owner, other = (serve(name, storage=firestore_proxy.address) for name in FUNCTIONS)
    paths, hold, turn_id = [tmp_path / "once", tmp_path / "again"], tmp_path / "hold", new_turn_id()
    hold.touch()
    done = ["once", {"path": str(tmp_path / "done")}]
    calls = [[path.name, {"path": str(path), "hold": str(hold)}] for path in paths]
    with start(owner, turn_id, [["tools", done], ["tools", *calls]]) as lost:
        for path in paths:
            wait_for_line(path)
        lose(owner, turn_id)
        lost.read_to_end()
    hold.unlink()
    rules = [
        firestore_proxy.inject(method, fault(status), when=when, times=1, after=skipped)
        for method, when, reads in READS.values()
        for skipped in range(reads)
        for fault in (Answer, DropAnswer)
    ]
    with resume(other, turn_id) as stream:
        stream.read_to_end()
        state = folded(stream)
        ends = [event.data for event in stream.events() if event.event == "tool_end"]
    assert [rule.fired for rule in rules] == [1] * 10
    outcomes = {end["step"]: end["status"] for end in ends}
    assert (len(ends), outcomes) == (3, {1: "ok", 2: "in_doubt", 3: "ok"})
    assert state.text.startswith('[ok {"step": 1}][in_doubt ')
    assert len(lines(tmp_path / "done")) == 1
    assert [len(lines(path)) for path in paths] == [1, 2]
    assert len(set(lines(paths[1]))) == 1


@pytest.mark.parametrize(("decision", "status"), [("approve", "ok"), ("deny", "denied")])
@pytest.mark.parametrize("point", ["before the decision", "after the decision"])
def test_a_decider_lost_at_its_decision(  # noqa: PLR0917 - a matrix
    serve: Serve,
    firestore_proxy: FirestoreProxy,
    tmp_path: Path,
    point: str,
    decision: str,
    status: str,
) -> None:
    """Before its commit the decision is not made, and can be made, also otherwise. After it, it is
    made: the next one runs the turn on, and the contrary changes nothing."""
    path, turn_id = tmp_path / "effects", new_turn_id()
    with start(serve("start_turn"), turn_id, [["tools", ["refund", {"path": str(path)}]]]) as asked:
        asked.read_to_end()
        assert asked.events()[-1].event == "tool_pending"
    lost = serve("run_tool_step", storage=firestore_proxy.address)
    made = point == "after the decision"
    contrary = {"approve": "deny", "deny": "approve"}[decision]
    fault = HoldAnswer(STAY) if made else Hold(STAY)
    rule = firestore_proxy.inject("Commit", fault, when=of_step(1), times=1)
    stand_still(firestore_proxy, rule)
    posted = threading.Thread(
        target=abandon, args=(lost, turn_id, decision if made else contrary), daemon=True
    )
    posted.start()
    came_to(firestore_proxy, rule)
    lost.kill()
    posted.join(PATIENCE_SECONDS)
    if made:  # whoever recorded it was about to run the step, and may have taken the lease
        lapse_turn(turn_id)
    assert lines(path) == []
    decider = serve("run_tool_step")
    for late in (contrary, decision) if made else (decision, contrary):
        with decide(decider, turn_id, 1, late) as stream:
            stream.read_to_end()
            ends = [event.data["status"] for event in stream.events() if event.event == "tool_end"]
            assert ends == [status]
            assert folded(stream).ended is not None
    assert len(lines(path)) == (1 if status == "ok" else 0)


def abandon(server: FunctionServer, turn_id: str, decision: str) -> None:
    """Post a decision to a server that is killed before it answers."""
    with decide(server, turn_id, 1, decision) as stream:
        stream.read_to_end()
