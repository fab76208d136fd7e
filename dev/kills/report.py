"""What the kills hit, and what came of it: as a table, and as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dev.kills.check import State
from dev.kills.kill import Ended
from dev.kills.subject import Subject
from functions.turns.steps import FINAL

_ROWS = (
    "before the turn was created",
    "between steps",
    "`once`, before its effect",
    "`once`, after its effect",
    "`idempotent`, before its effect",
    "`idempotent`, after its effect",
    "`transactional`, before its body",
    "`transactional`, after its body",
    "a model call, in the midst of it",
    "after the end",
)


@dataclass(frozen=True)
class Tally:
    """All that was counted over a run."""

    turns: int
    kills: int
    rows: Sequence[tuple[str, int, str]]
    """Where a kill hit, how often, and what became of the steps that were open there."""
    wrong: Sequence[tuple[int, Sequence[str]]]
    slowest: float
    """The longest time from a kill to the end of the turn."""


def tally(subject: Subject, ended: Sequence[Ended]) -> Tally:
    """Count."""
    hits: Counter[str] = Counter()
    outcomes: dict[str, Counter[str]] = {}
    for one in ended:
        for state in one.found:
            for row, position in _hit(subject, state):
                hits[row] += 1
                if position:
                    status = one.state.steps.get(position, "lost")
                    outcomes.setdefault(row, Counter())[status] += 1
    rows = [
        (row, hits[row], ", ".join(f"{n} `{s}`" for s, n in outcomes.get(row, Counter()).items()))
        for row in _ROWS
        if hits[row] or row != _ROWS[-2]
    ]
    return Tally(
        turns=len(ended),
        kills=sum(len(one.found) for one in ended),
        rows=rows,
        wrong=[(one.turn.number, one.problems) for one in ended if one.problems],
        slowest=max((one.seconds for one in ended), default=0.0),
    )


def _hit(subject: Subject, state: State) -> Iterator[tuple[str, int]]:
    """Where a kill hit: each step that was open then, or what was between steps."""
    if not state.epoch:
        yield _ROWS[0], 0
    elif state.ended:
        yield _ROWS[-1], 0
    else:
        begun = [at for at, status in sorted(state.steps.items()) if status not in FINAL]
        for position in begun:
            policy = subject.tools[position].value
            what = "body" if policy == "transactional" else "effect"
            when = "after" if state.calls.get(position) else "before"
            yield f"`{policy}`, {when} its {what}", position
        asked = [at for at in subject.models if state.calls.get(at) and at not in state.steps]
        if asked:
            yield _ROWS[-2], 0
        elif not begun:
            yield _ROWS[1], 0


def table(counted: Tally) -> str:
    """The table, in Markdown."""
    lines = ["| the kill hit | times | the step's outcome |", "| --- | --- | --- |"]
    lines += [f"| {row} | {times} | {outcomes or '–'} |" for row, times, outcomes in counted.rows]
    return "\n".join(lines)


def verdict(counted: Tally) -> str:
    """The findings in a sentence or two."""
    if counted.wrong:
        return f"{len(counted.wrong)} of {counted.turns} turns went wrong."
    return (
        f"{counted.kills} containers killed in {counted.turns} turns: no effect twice, no outcome "
        f"lost, no turn stuck. The slowest turn ended {counted.slowest:.1f} s after its last kill."
    )


def document(subject: Subject, counted: Tally, *, count: int, seed: int) -> str:
    """The report, in Markdown."""
    wrong = "".join(
        f"\n- turn {number}: {'; '.join(problems)}" for number, problems in counted.wrong
    )
    options = f"--agent {subject.name} " if subject.remembers else ""
    models = (
        """
- **model calls**: none that was recorded when a container was found dead is made again.
- **messages**: what the turn leaves in its session equals what an uninterrupted turn leaves, but
  for ids, times and the words of outcomes in doubt; they are in the order of their times."""
        if subject.remembers
        else ""
    )
    return f"""# Containers killed at random

Written by `venv/bin/python -m dev.kills {options}--count {count} --seed {seed} --report`: real
functions-framework processes on the official Firestore emulator, killed by SIGKILL at random
moments of a turn that {subject.turn}.
Another container finishes the turn; of a fifth of the turns that one is killed, too.

**{verdict(counted)}**
{wrong}
{table(counted)}

Two steps side by side count twice. After each turn is checked:

- **effects**, outside the process, by the lines of a file and a counter in Firestore. `once`: at
  most one call, and exactly one if the outcome is `ok`. `idempotent`: one key, however many calls.
  `transactional`: counted exactly once.
- **outcomes**: one `tool_end` for each step, the same as recorded and as the agent was told;
  `in_doubt` only of `once`.
- **text**: that of the client that saw the kills equals that of one that came later, and that of
  an uninterrupted turn, but for `in_doubt` where it is said.
- **time**: the turn ends.{models}
"""
