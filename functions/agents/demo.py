"""A demo agent that needs no key and no network. Same prompt, same answer.

It plans, thinks in silence, and answers: two model steps. The prompt may set its pace:
`rate=200` tokens a second, `silence=25` seconds in the middle, `words=300` in the answer.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from functions.turns.program import Agent, Emit, Turn

_OPTION = re.compile(r"\b(rate|silence|words)=([0-9]{1,5}(?:\.[0-9]{1,3})?)\b")

_PLAN = ("Let", " me", " think", " about", " that.\n\n")
_SUBJECTS = (
    "a stream", "the journal", "a lease", "every token", "the client", "a container",
    "the next owner", "an event", "a proxy", "the cursor", "a heartbeat", "the fence",
)  # fmt: skip
_VERBS = (
    "remembers", "survives", "follows", "hands over", "waits for", "outlives", "replays",
    "guards", "finds again", "never repeats", "carries", "picks up",
)  # fmt: skip
_OBJECTS = (
    "what was said before", "a dropped connection", "the same bytes", "its turn",
    "a killed process", "the last word", "one clear answer", "the silence in between",
    "a thread of thought", "the place it stopped", "an open promise", "the whole story",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the demo talks. `rate` in tokens a second."""

    rate: float = 20.0
    silence: float = 6.0
    words: int = 240


def pace(prompt: str) -> Pace:
    """The pace a prompt asks for, within sane bounds."""
    asked = {name: float(value) for name, value in _OPTION.findall(prompt)}
    return Pace(
        rate=min(max(asked.get("rate", Pace().rate), 0.1), 5000),
        silence=min(asked.get("silence", Pace().silence), 300),
        words=int(min(max(asked.get("words", Pace().words), 1), 20_000)),
    )


def tokens(prompt: str, words: int) -> Iterator[str]:
    """`words` words of text that depend on the prompt alone, each with the space before it."""
    seed = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big")
    choose = random.Random(seed)  # noqa: S311 - the same text every time is the point
    count = 0
    while count < words:
        sentence = [choose.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS)]
        for word in _sentence(" ".join(sentence)):
            if count == words:
                return
            yield word if count == 0 else f" {word}"
            count += 1


def _sentence(text: str) -> list[str]:
    return f"{text[0].upper()}{text[1:]}.".split()


def _speak(emit: Emit, words: Iterator[str], rate: float) -> int:
    """Emit at an even rate, whatever each emission takes. Returns how many were emitted."""
    begun = time.monotonic()
    said = 0
    for said, word in enumerate(words, start=1):
        emit(word)
        time.sleep(max(0.0, begun + said / rate - time.monotonic()))
    return said


def run(turn: Turn) -> None:
    """Plan, think, answer."""
    wanted = pace(turn.prompt)

    def plan(emit: Emit) -> dict[str, int]:
        _speak(emit, iter(_PLAN), wanted.rate)
        time.sleep(wanted.silence)
        return {"words": wanted.words}

    planned = turn.model("plan", {"prompt": turn.prompt}, plan)

    def answer(emit: Emit) -> dict[str, int]:
        return {"tokens": _speak(emit, tokens(turn.prompt, planned["words"]), wanted.rate)}

    turn.model("answer", {"prompt": turn.prompt, "plan": planned}, answer)


AGENT = Agent(run, version="demo-1")
