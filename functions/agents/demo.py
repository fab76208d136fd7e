"""A demo agent that needs no key and no network. Same prompt, same answer.

It plans, thinks in silence, and answers: two model steps. The prompt may set its pace:
`rate=200` tokens a second, `silence=25` seconds in the middle, `words=300` in the answer.

Between the two it calls the tools that the prompt mentions: a "ticket", to "look up" or "query" the
order, to "pay" or "charge", side by side; then a "refund". `query=5` sets the query's seconds,
`19 dollars` the amount.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from functions.agents.demo_tools import (
    LONGEST_QUERY_SECONDS,
    charge,
    open_ticket,
    refund,
    slow_query,
)
from functions.turns.program import Agent, Emit, Turn
from functions.turns.tools import Tool

_OPTION = re.compile(r"\b(rate|silence|words|query)=([0-9]{1,5}(?:\.[0-9]{1,3})?)\b")
_DOLLARS = re.compile(r"\b([0-9]{1,5}) dollars?\b", re.IGNORECASE)
_MENTIONS = {
    open_ticket.name: re.compile(r"\btickets?\b", re.IGNORECASE),
    slow_query.name: re.compile(r"\b(look up|query)\b", re.IGNORECASE),
    charge.name: re.compile(r"\b(pay|charge)\b", re.IGNORECASE),
    refund.name: re.compile(r"\brefund\b", re.IGNORECASE),
}

_ORDER = "A-17"
_OTHER_ENDS = {
    "denied": "was denied",
    "expired": "was not approved in time",
    "timeout": "took too long",
    "in_doubt": "is in doubt: nobody can know whether it took place",
}

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
    query: float = 25.0
    """How long the slow query takes, in seconds."""


def pace(prompt: str) -> Pace:
    """The pace a prompt asks for, within sane bounds."""
    asked = {name: float(value) for name, value in _OPTION.findall(prompt)}
    return Pace(
        rate=min(max(asked.get("rate", Pace().rate), 0.1), 5000),
        silence=min(asked.get("silence", Pace().silence), 300),
        words=int(min(max(asked.get("words", Pace().words), 1), 20_000)),
        query=min(asked.get("query", Pace().query), LONGEST_QUERY_SECONDS),
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


Calls = list[tuple[Tool, dict[str, Any]]]
"""The tool calls of one response."""


def calls(prompt: str) -> list[Calls]:
    """The tool calls that a prompt asks for, response by response: the refund comes last."""
    dollars = _DOLLARS.search(prompt)
    payment = {"order": _ORDER, "cents": 100 * int(dollars[1]) if dollars else 1900}
    responses: list[Calls] = [
        [
            (open_ticket, {"subject": f"Order {_ORDER}"}),
            (slow_query, {"order": _ORDER, "seconds": pace(prompt).query}),
            (charge, payment),
        ],
        [(refund, payment)],
    ]
    asked = [[one for one in each if _MENTIONS[one[0].name].search(prompt)] for each in responses]
    return [each for each in asked if each]


def told(tool: Tool, status: str, result: Any) -> str:
    """What became of a call, in a sentence. No ids: they are in the events, and never the same."""
    name = tool.name.replace("_", " ")
    if status == "error":
        return f"The {name} failed: {result['message']}."
    if status != "ok":
        return f"The {name} {_OTHER_ENDS[status]}."
    if tool is open_ticket:
        return f"A ticket is open: {result['subject']}."
    if tool is slow_query:
        items = " and ".join(row["item"] for row in result["rows"])
        return f"Order {result['order']} is {items}."
    done = "charged to" if tool is charge else "refunded for"
    return f"{result['cents'] / 100:.2f} dollars are {done} order {result['order']}."


def run(turn: Turn) -> None:
    """Plan, think, call tools, answer."""
    wanted = pace(turn.prompt)

    def plan(emit: Emit) -> dict[str, int]:
        _speak(emit, iter(_PLAN), wanted.rate)
        time.sleep(wanted.silence)
        return {"words": wanted.words}

    planned = turn.model("plan", {"prompt": turn.prompt}, plan)

    for response in calls(turn.prompt):
        outcomes = turn.call_all(response)
        for (tool, _args), outcome in zip(response, outcomes, strict=True):
            turn.token(f"{told(tool, outcome.status, outcome.result)}\n")
        turn.token("\n")

    def answer(emit: Emit) -> dict[str, int]:
        return {"tokens": _speak(emit, tokens(turn.prompt, planned["words"]), wanted.rate)}

    turn.model("answer", {"prompt": turn.prompt, "plan": planned}, answer)


AGENT = Agent(run, version="demo-2")
