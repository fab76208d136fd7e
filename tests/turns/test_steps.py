"""What comes of a recorded step: by table, without a turn."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.errors import TurnFailed
from functions.turns import steps
from functions.turns.steps import Move, Step, next_move, require_same
from functions.turns.tools import Policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = Step(1, "tool", "pay", "hash", steps.STARTED)
WAITING = replace(STARTED, status=steps.WAITING, decide_by=NOW + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("recorded", "policy", "needs_approval", "move"),
    [
        (None, Policy.ONCE, False, Move.RUN),
        (None, Policy.ONCE, True, Move.WAIT),
        (STARTED, Policy.ONCE, False, Move.DOUBT),
        (STARTED, Policy.ONCE, True, Move.DOUBT),
        (STARTED, Policy.IDEMPOTENT, True, Move.RUN),
        (STARTED, Policy.TRANSACTIONAL, False, Move.RUN),
        (replace(STARTED, policy="once"), Policy.IDEMPOTENT, False, Move.DOUBT),
        (replace(STARTED, policy="transactional"), Policy.IDEMPOTENT, False, Move.RUN),
        (replace(STARTED, policy="idempotent"), Policy.ONCE, False, Move.DOUBT),
        (WAITING, Policy.ONCE, True, Move.WAIT),
        (replace(WAITING, decide_by=NOW), Policy.ONCE, True, Move.EXPIRE),
        (replace(WAITING, decision=steps.APPROVE), Policy.ONCE, True, Move.RUN),
        (replace(WAITING, decision=steps.DENY), Policy.IDEMPOTENT, True, Move.DENY),
        (replace(WAITING, decide_by=NOW, decision=steps.APPROVE), Policy.ONCE, True, Move.RUN),
        *((replace(STARTED, status=end), Policy.ONCE, True, Move.REPLAY) for end in steps.FINAL),
    ],
)
def test_each_recorded_state_has_one_move(
    recorded: Step | None, policy: Policy, *, needs_approval: bool, move: Move
) -> None:
    """A started `once` call is never made again; a decision in time holds after it, too."""
    assert next_move(recorded, policy, needs_approval=needs_approval, now=NOW) is move


@pytest.mark.parametrize(
    ("kind", "name", "args_hash", "says"),
    [
        ("model", "pay", "hash", "tool 'pay' and is now model 'pay'"),
        ("tool", "refund", "hash", "is now tool 'refund'"),
        ("tool", "pay", "other", "other arguments"),
    ],
)
def test_another_step_at_a_position_is_said(
    kind: str, name: str, args_hash: str, says: str
) -> None:
    """Also a model call where a tool was called: its outcome is no answer."""
    require_same(STARTED, "tool", "pay", "hash")
    with pytest.raises(TurnFailed, match=says):
        require_same(STARTED, kind, name, args_hash)  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ("\ud83d\ude00", "😀"),
        ("half \ud83d", "half \ufffd"),
        ({"\udc00": ["\ud83d", "x"]}, {"\ufffd": ["\ufffd", "x"]}),
        ("\\ud83d", "\\ud83d"),
        ('"\ud83d"', '"\ufffd"'),
        ("😀", "😀"),
    ],
)
def test_what_is_recorded_is_unicode(value: Any, recorded: Any) -> None:
    """A model's provider, and a session, are sent UTF-8, which carries no half of a pair."""
    assert json.loads(steps.to_json(1, value)) == recorded
