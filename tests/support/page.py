"""The page in a person's terms: send, read, press, wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from playwright.sync_api import Locator, Page

from dev.suite import Suite
from functions.wire.fold import Fold
from tests.support.client import asked_again, folded, headers
from tests.support.patience import PATIENCE_SECONDS
from tests.support.payments import PaymentServer
from tests.support.sse import RawStream
from tests.support.tcp_proxy import CuttingProxy

WAIT_MS = 1000 * PATIENCE_SECONDS

_TEXT = """turn => [...turn.querySelectorAll('.text')].map(text =>
    [...text.children].map(block => block.textContent).join('\\n'))"""

# The driver keeps every tab of a headless Chromium visible, so that what a page sees of being
# hidden is put in place: what it says, and that no frame is ever drawn.
_HIDE = """() => {
  const value = (name, got) =>
      Object.defineProperty(document, name, {get: () => got, configurable: true});
  value('hidden', true);
  value('visibilityState', 'hidden');
  window.draw = window.requestAnimationFrame;
  window.requestAnimationFrame = () => 0;
  document.dispatchEvent(new Event('visibilitychange'));
}"""
_UNHIDE = """() => {
  delete document.hidden;
  delete document.visibilityState;
  window.requestAnimationFrame = window.draw;
  document.dispatchEvent(new Event('visibilitychange'));
}"""


@dataclass(frozen=True)
class Stack:
    """What `make dev` starts, with a proxy between the page and the functions."""

    suite: Suite
    network: CuttingProxy
    payments: PaymentServer
    control_port: str

    @property
    def url(self) -> str:
        """The page, told where the control server listens."""
        return f"{self.suite.hosting}/?control={self.control_port}"


class ChatPage:
    """One tab with the page in it."""

    def __init__(self, page: Page, url: str) -> None:
        page.set_default_timeout(WAIT_MS)
        self.page = page
        self._url = url

    def open(self, view: str = "chat") -> Self:
        """Load it, and wait until it is signed in."""
        self.page.goto(f"{self._url}#{view}")
        self.page.wait_for_selector("body[data-ready]")
        return self

    def reload(self) -> None:
        """As by its button."""
        self.page.reload()
        self.page.wait_for_selector("body[data-ready]")

    def send(self, prompt: str) -> str:
        """Type a prompt and press Enter; the new turn's id."""
        before = self.turns.count()
        self.page.fill("#prompt", prompt)
        self.page.press("#prompt", "Enter")
        self.turns.nth(before).wait_for()
        return self.turn_id()

    @property
    def turns(self) -> Locator:
        """All turns on the page, oldest first."""
        return self.page.locator(".turn")

    def turn_id(self) -> str:
        """The id of the newest turn."""
        return str(self.turns.last.get_attribute("data-turn"))

    def wait_for(self, status: str) -> None:
        """Wait until the newest turn has that status."""
        self.page.wait_for_selector(f".turn:last-child[data-status={status}]")

    def wait_for_text(self, characters: int) -> None:
        """Wait until the newest turn shows so much text."""
        self.page.wait_for_function(
            "length => document.querySelector('.turn:last-child .answer').textContent.length"
            " >= length",
            arg=characters,
        )

    def text(self) -> str:
        """The newest turn's text as it is shown, without the cards of its tools."""
        parts: list[str] = self.turns.last.evaluate(_TEXT)
        return "\n\n".join(parts)

    def step(self, tool: str) -> Locator:
        """The card of a tool, by its name on the page."""
        return self.turns.last.locator(f".step[aria-label='{tool}']")

    def timeline(self) -> list[tuple[str, str]]:
        """The log of the wire: what happened, and the words."""
        rows: list[list[str]] = self.page.evaluate(
            """() => [...document.querySelectorAll('#timeline li')].map(row =>
                [row.dataset.kind, row.querySelector('.what').textContent])"""
        )
        return [(kind, words) for kind, words in rows]

    def calls(self) -> list[str]:
        """The calls that the page has made, as its timeline tells them."""
        return [words for kind, words in self.timeline() if kind == "call"]

    def press(self, selector: str) -> None:
        """Click a button."""
        self.page.click(selector)

    def hide(self) -> None:
        """As when another tab comes before it."""
        self.page.evaluate(_HIDE)

    def unhide(self) -> None:
        """As when the user comes back to it."""
        self.page.evaluate(_UNHIDE)

    def uid(self) -> str:
        """Who is signed in."""
        return str(self.page.locator("#account .who").first.get_attribute("title"))

    def evaluate(self, script: str) -> Any:
        """Run a script in the page."""
        return self.page.evaluate(script)


def journal(suite: Suite, chat: ChatPage) -> Fold:
    """The newest turn as the server tells it to a client that begins at its start."""
    turn_id, uid = chat.turn_id(), chat.uid()

    def attempt() -> RawStream:
        return RawStream(suite.function("resume_turn"), "GET", headers(turn_id, 0, uid=uid))

    with asked_again(attempt) as stream:
        stream.read_to_end()
        return folded(stream)
