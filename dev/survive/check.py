"""Whether the client lost nothing and has nothing twice."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from dev.survive.client import Client
from functions.agents import demo


@dataclass(frozen=True)
class Check:
    """The client's text against a replay of the journal, word by word."""

    words: int
    lost: int
    """Words of the journal that the client lacks."""
    twice: int
    """Words that the client has beyond the journal's, and events that came again."""
    as_asked: bool
    """The text is the one that the agent has for this prompt, whatever happens."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.lost and not self.twice and self.as_asked

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.words} words, {self.lost} lost, {self.twice} twice"


def compare(client: Client, replay: Client, prompt: str) -> Check:
    """Compare what a client has in the end with what one has that was never cut off."""
    has, journal = client.fold.text.split(), replay.fold.text.split()
    lost = twice = 0
    matcher = difflib.SequenceMatcher(None, journal, has, autojunk=False)
    for kind, j_from, j_to, h_from, h_to in matcher.get_opcodes():
        if kind != "equal":
            lost += j_to - j_from
            twice += h_to - h_from
    answer = "".join(demo.tokens(prompt, demo.pace(prompt).words))
    same = client.fold.text == replay.fold.text
    return Check(
        words=len(has),
        lost=lost,
        twice=twice + client.repeated,
        as_asked=same and client.fold.text.endswith(f"\n\n{answer}"),
    )
