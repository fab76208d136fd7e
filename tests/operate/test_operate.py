"""The operator's commands, against journals that real processes wrote and lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from google.cloud.firestore import FieldFilter

from functions import firestore
from functions.turns import journal, record, steps, takeover
from functions.turns.lease import MARGIN_SECONDS, Holder
from functions.turns.record import Request
from operate import lists
from tests.conftest import PROJECT, Serve
from tests.support.client import decide, new_turn_id, resume, start
from tests.support.lapse import lapse_turn
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.turns.conftest import settings

ROOT = Path(__file__).parents[2]
SECRET = "the words of a user"
pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]


def operate(*words: str, status: int = 0) -> str:
    """What the command prints; AssertionError for another exit status."""
    done = subprocess.run(
        [sys.executable, "-m", "operate", *words],
        cwd=ROOT,
        env={**os.environ, "GCLOUD_PROJECT": PROJECT},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def key_of(turn_id: str) -> str:
    """The key of a turn, whoever owns it."""
    turns = firestore.client().collection(firestore.TURNS)
    (found,) = turns.where(filter=FieldFilter("turnId", "==", turn_id)).stream()
    return str(found.id)


@pytest.fixture
def troubled(serve: Serve, tmp_path: Path) -> str:
    """A turn whose owner was killed in a tool: another one took over and finished it."""
    effects, hold, turn_id = tmp_path / "effects", tmp_path / "hold", new_turn_id()
    hold.touch()
    script = [
        ["say", SECRET],
        ["model", "plan", [["count", 1, 3, 0]], SECRET],
        ["tools", ["once", {"path": str(effects), "hold": str(hold)}]],
        ["count", 1, 60, 100],
    ]
    owner = serve("start_turn")
    with start(owner, turn_id, script) as stream:
        stream.read_until("tool_start")
        wait_until(effects.exists)
        owner.kill()
    key = lapse_turn(turn_id)
    with resume(serve("resume_turn"), turn_id) as stream:
        stream.read_to_end()
    return key


def test_a_timeline_tells_who_wrote_what_and_who_took_over(troubled: str) -> None:
    """And which step is in doubt; nothing that was said, unless it is asked for."""
    told = operate("timeline", troubled)
    turn = record.load(troubled)
    assert turn is not None
    chunks = [journal.chunk_at(troubled, index) for index in (0, 1)]
    assert chunks[0] is not None
    assert "status   done" in told
    assert f"run      {turn.run_id}" in told
    assert f"{chunks[0].nonce[:8]}" in told
    took_over = re.search(r"epoch 2: (\w{8}) took over (\d+\.\d) s later; ids (\d+)–(\d+)", told)
    assert took_over is not None
    assert took_over[1] == turn.holder.nonce[:8]
    assert float(took_over[2]) > MARGIN_SECONDS, "the lease was over, and nobody waited for it"
    assert int(took_over[4]) - int(took_over[3]) == turn.window - 1
    assert "rewind to " in told
    assert "tool_start 2 once" in told
    assert "tool_end 2 once in_doubt" in told
    assert re.search(r"1 model plan ok; begun by 1, written by epoch 1", told)
    assert re.search(r"2 tool  once in_doubt; begun by 1, written by epoch 2", told)
    assert "done stop" in told
    assert "gap" not in told
    assert not re.search(r"\b(\d+)–\1\b", told), "one id is no range"
    assert SECRET not in told
    assert SECRET in operate("timeline", troubled, "--text")


def test_a_timeline_names_what_is_missing(troubled: str) -> None:
    """Chunks that TTL deleted, in the middle and at the end."""
    last = journal.tail(troubled)
    assert last is not None
    journal.document(troubled, 1).delete()
    assert "gap: chunk 1 is missing" in operate("timeline", troubled)
    journal.document(troubled, 2).delete()
    journal.document(troubled, last.index).delete()
    told = operate("timeline", troubled)
    assert "gap: chunks 1–2 are missing" in told
    assert "gap: the end is missing" in told


def test_a_step_in_doubt_is_listed_and_takes_notes_but_no_other_outcome(troubled: str) -> None:
    """What an operator found out is added; what everybody was told stays."""
    before = steps.document(troubled, 2).get().to_dict()
    listed = operate("list", "in-doubt", "--limit", "1000")
    assert re.search(rf"{troubled}  step 2    once .* no note", listed)
    for words in ("the provider has no such charge", "asked again: none"):
        operate("annotate", troubled, "--step", "2", "--by", "ada", "--note", words)
    after = steps.document(troubled, 2).get().to_dict() or {}
    assert [note["text"] for note in after.pop(steps.NOTES)] == [
        "the provider has no such charge",
        "asked again: none",
    ]
    assert after == before
    assert "note of ada" in operate("timeline", troubled)
    assert "ada: the provider" in operate("list", "in-doubt", "--limit", "1000")


@pytest.mark.parametrize(("step", "words"), [("1", "step 1 is ok"), ("9", "no step 9")])
def test_a_step_with_an_outcome_takes_no_note(troubled: str, step: str, words: str) -> None:
    """Nor one that is not there."""
    given = ["--step", step, "--by", "ada", "--note", "x"]
    assert words in operate("annotate", troubled, *given, status=1)


def test_cost_is_reckoned_from_what_is_stored(troubled: str) -> None:
    """Every document was written once, but for the turn's and the steps'."""
    told = operate("cost", troubled)
    chunks = len(list(journal.events(troubled).stream()))
    turn = record.reference(troubled).get().to_dict() or {}
    assert f"{chunks} chunks of the journal" in told
    assert "3 of steps" in told, "a model step once, a tool's start and outcome"
    assert "3 of the turn: made, taken over, ended" in told
    assert f"{turn['lease']['beat']} renewals of its last owner" in told
    assert f"reads    {chunks + 1} for one replay" in told
    assert f"stored   {chunks + 3} documents" in told
    stored = int(re.search(r"documents, (\d+) bytes; the stream's are (\d+)", told)[1])  # type: ignore[index]
    framed = sum(len(one.get("frames")) for one in journal.events(troubled).stream())
    assert framed < stored < framed + 1000 * (chunks + 3)


def test_running_waiting_and_stuck_turns_are_listed(serve: Serve, tmp_path: Path) -> None:
    """Each with how it stands."""
    running, waiting, dead = new_turn_id(), new_turn_id(), new_turn_id()
    server = serve("start_turn")
    with start(server, waiting, [["tools", ["refund", {"path": str(tmp_path / "x")}]]]) as stream:
        stream.read_until("tool_pending")
    with start(server, running, [["count", 1, 10_000, 10]]) as stream:
        stream.read_until(1)
        other = serve("start_turn")
        with start(other, dead, [["count", 1, 10_000, 10]]) as lost:
            lost.read_until(1)
            other.kill()
        listed = operate("list", "running", "--limit", "1000")
        begun = r"running, lease for another [0-9.]+ s; begun 20[0-9]{2}-[0-9: -]+Z"
        assert re.search(rf"{key_of(running)}  epoch 1 +{begun}", listed)
        assert key_of(dead) in listed
        assert re.search(
            rf"{key_of(waiting)}  epoch 1 +waiting for a person until", operate("list", "waiting")
        )
        assert key_of(dead) not in operate("list", "stuck")
    approvals = serve("run_tool_step")
    with decide(approvals, waiting, 1, "deny") as stream:
        stream.read_to_end()
    assert key_of(waiting) not in operate("list", "waiting", "--limit", "1000")


def test_a_turn_that_nobody_took_over_is_stuck_after_a_minute() -> None:
    """Judged by the server's times; one past its retention is nobody's work any more."""
    now = datetime.now(UTC)
    asked, holder = Request("p", None), Holder.first(9)
    fields = record.new_fields(
        "o", "t", asked, holder, agent_version="1", now=now, retention_hours=24
    )
    turn = record.from_fields("k", fields, created_at=now, updated_at=now, read_at=now)
    assert lists.stuck([turn]) == []
    late = replace(turn, read_at=now + timedelta(seconds=9.5 + lists.STUCK_SECONDS + 1))
    assert lists.stuck([late]) == [late]
    assert lists.stuck([replace(late, read_at=now + timedelta(hours=25))]) == []
    waiting = replace(late, status=record.WAITING, waiting_until=now + timedelta(seconds=60))
    assert lists.stuck([waiting]) == [waiting]


def test_a_user_is_deleted_when_it_is_said_twice(storage: None) -> None:
    """With `--yes`; a turn that runs is stopped, and nothing of what was said is left."""
    assert storage is None
    uid, turn_id = new_turn_id(), new_turn_id()
    owner = f"uid:{uid}"
    taken = takeover.create(
        owner, turn_id, Request(SECRET, None), agent_version="1", settings=settings()
    )
    assert taken is not None
    assert "--yes" in operate("delete", "--uid", uid, status=2)
    assert "running" in operate("timeline", "--uid", uid, "--turn", turn_id)
    assert "deleted 1 turns" in operate("delete", "--uid", uid, "--yes")
    told = operate("timeline", "--uid", uid, "--turn", turn_id, "--text")
    assert "status   deleted" in told
    assert "its content was deleted" in told
    assert SECRET not in told


def test_what_users_wrote_steers_no_terminal(storage: None) -> None:
    """Control characters of a prompt or a user's name, C1 and marks of direction, are spelt out."""
    assert storage is None
    uid, turn_id = f"\x1b[2J{new_turn_id()}", new_turn_id()
    asked = Request("\x9b31m\u202e\x1b]0;x\x07é🌍", None)
    assert takeover.create(f"uid:{uid}", turn_id, asked, agent_version="1", settings=settings())
    told = operate("timeline", key_of(turn_id), "--text")
    assert told.replace("\n", "").isprintable()
    assert r"uid:\x1b[2J" in told
    assert r"\x9b31m\u202e\u001b" in told
    assert "é🌍" in told


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["timeline", "0" * 40], "there is no turn", 1),
        (["timeline"], "name the turn by its key", 2),
        (["timeline", "--uid", "u"], "name the turn by its key", 2),
        (["timeline", f"agent_turns/{'0' * 40}"], "40 of 0-9 a-f", 2),
        (["list", "running", "--limit", "-1"], "--limit", 2),
        (["delete", "--uid", "\udcff", "--yes"], "UTF-8", 2),
        (["cost", "--uid", "u", "--turn", "t"], "there is no turn", 1),
        (["annotate", "0" * 40, "--step", "1", "--by", "a", "--note", "n"], "no step 1", 1),
    ],
)
def test_what_is_not_there_is_said(words: list[str], said: str, status: int) -> None:
    """With exit status 1, or 2 where it was not asked for, and no stack."""
    told = operate(*words, status=status)
    assert said in told
    assert "Traceback" not in told


def test_without_a_project_it_says_how_to_name_one() -> None:
    """Nothing is guessed."""
    environ = {k: v for k, v in os.environ.items() if not re.match("GCLOUD_PROJECT|FIRESTORE", k)}
    done = subprocess.run(
        [sys.executable, "-m", "operate", "list", "running"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--project" in done.stderr


def test_without_credentials_it_says_how_to_sign_in(tmp_path: Path) -> None:
    """No stack of Google's libraries."""
    environ = {k: v for k, v in os.environ.items() if not re.match("GCLOUD|FIRESTORE|GOOGLE", k)}
    # Nobody is signed in there, and no machine of Google's is looked for.
    elsewhere = {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}
    done = subprocess.run(
        [sys.executable, "-m", "operate", "--project", "some-project", "list", "running"],
        cwd=ROOT,
        env={**environ, **elsewhere},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "gcloud auth application-default login" in done.stderr
    assert "Traceback" not in done.stderr
