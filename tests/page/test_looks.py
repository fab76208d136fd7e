"""The page for everybody: screen readers, keyboards, phones, light and dark."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest

from dev import node
from tests.support.page import ChatPage, Stack
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(400)]

AXE = node.PAGE / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = ("chat", "wire", "labs")


def violations(chat: ChatPage) -> list[str]:
    """What axe finds wrong: names, roles, contrast, order."""
    result: dict[str, Any] = chat.evaluate("axe.run()")
    return [
        f"{each['id']}: {found['html']}" for each in result["violations"] for found in each["nodes"]
    ]


def test_nothing_is_wrong_for_assistive_technology(chat: ChatPage) -> None:
    """With a turn that waits for a person on it, in every view, light and dark."""
    chat.page.add_script_tag(path=AXE)
    assert violations(chat) == []
    chat.send("Open a ticket and refund me 19 dollars silence=0 rate=100 words=20")
    chat.wait_for("waiting")
    for scheme in ("light", "dark"):
        chat.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for view in VIEWS:
            chat.evaluate(f"location.hash = '{view}'")
            chat.page.wait_for_selector(f"body[data-view={view}]")
            assert violations(chat) == [], (scheme, view)


def test_a_phone_needs_no_sideways_scroll(chat: ChatPage) -> None:
    """At 360 px every view fits, with a turn of tools and its log on it."""
    chat.send("Open a ticket and refund me 19 dollars silence=0 rate=100 words=20")
    chat.wait_for("waiting")
    chat.page.set_viewport_size({"width": 360, "height": 720})
    for view in VIEWS:
        chat.evaluate(f"location.hash = '{view}'")
        chat.page.wait_for_selector(f"body[data-view={view}]")
        # A picture is drawn anew once the page is.
        chat.page.wait_for_function("document.documentElement.scrollWidth === 360")
        wide: list[str] = chat.evaluate(
            """() => [...document.querySelectorAll('main *')]
                .filter(each => each.checkVisibility() && !each.closest('svg, .hidden'))
                .filter(each => each.getBoundingClientRect().right > 360.5)
                .map(each => each.outerHTML.slice(0, 80))"""
        )
        assert wide == [], view


def test_a_reader_at_the_end_stays_there_when_the_page_is_laid_out_anew(chat: ChatPage) -> None:
    """A phone is turned; the way to the end is offered to a reader who is elsewhere, as before."""
    chat.send("A long answer silence=0 rate=2000 words=600")
    chat.wait_for("done")
    at_end = """() => { const {scrollHeight, scrollTop, clientHeight} =
        document.getElementById('scroll'); return scrollHeight - scrollTop - clientHeight < 2 }"""
    for width, height in ((360, 720), (720, 360), (1280, 800)):
        chat.page.set_viewport_size({"width": width, "height": height})
        chat.page.wait_for_function(at_end)
    chat.evaluate("document.getElementById('scroll').scrollTop = 0")
    chat.page.wait_for_function("document.getElementById('scroll').scrollTop === 0")
    chat.page.set_viewport_size({"width": 360, "height": 720})
    chat.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert chat.evaluate("document.getElementById('scroll').scrollTop") == 0


def test_a_new_chat_on_a_phone_begins_at_the_top(chat: ChatPage) -> None:
    """Where the welcome is longer than the screen."""
    chat.page.set_viewport_size({"width": 360, "height": 500})
    for _ in range(2):
        assert chat.evaluate(
            """document.querySelector('#welcome h2').getBoundingClientRect().top
                >= document.getElementById('scroll').getBoundingClientRect().top"""
        )
        chat.press("#new")


@pytest.mark.parametrize("width", [1280, 360])
def test_every_label_of_the_idle_chart_can_be_read(chat: ChatPage, width: int) -> None:
    """Each is inside of the picture, whatever its length, and as large on a phone."""
    chat.open("labs")
    chat.page.set_viewport_size({"width": width, "height": 720})
    chat.page.wait_for_function(
        """() => { const picture = document.querySelector('#lab-idle-timeout .chart > svg');
            return picture.viewBox.baseVal.width === picture.clientWidth }"""
    )
    unreadable: list[str] = chat.evaluate(
        """() => [...document.querySelectorAll('#lab-idle-timeout .chart > svg text')]
            .filter(each => {
              const [label, whole] = [each, each.ownerSVGElement]
                  .map(one => one.getBoundingClientRect());
              return label.right > whole.right + 0.5 || label.left < whole.left - 0.5
                  || label.height < 12;
            }).map(each => each.textContent)"""
    )
    assert chat.page.locator("#lab-idle-timeout .chart > svg text").count() > 5
    assert unreadable == []


def test_no_foreign_page_may_frame_it(stack: Stack) -> None:
    """Its buttons approve refunds: nobody may lay something else over them."""
    with urllib.request.urlopen(stack.suite.hosting, timeout=PATIENCE_SECONDS) as response:
        assert response.headers["Content-Security-Policy"] == "frame-ancestors 'self'"
        assert response.headers["Cache-Control"] == "no-cache"


def test_the_keyboard_alone(chat: ChatPage) -> None:
    """From the page's top to the prompt, to sending, to an answer to the question."""
    chat.page.keyboard.press("Tab")
    chat.page.keyboard.press("Enter")  # "Skip to the prompt"
    assert chat.evaluate("document.activeElement.id") == "prompt"
    chat.page.keyboard.type("Refund me 19 dollars silence=0 rate=100 words=20")
    chat.page.keyboard.press("Enter")
    chat.wait_for("waiting")
    for _ in range(8):
        chat.page.keyboard.press("Shift+Tab")
        if chat.evaluate("document.activeElement.textContent") == "Deny":
            break
    chat.page.keyboard.press("Enter")
    chat.wait_for("done")
    assert "The refund was denied." in chat.text()
    # The button is gone; whoever pressed it is still where it was.
    chat.page.wait_for_function("document.activeElement.closest('.step')?.ariaLabel === 'Refund'")


def test_a_screen_reader_hears_milestones_and_no_tokens(chat: ChatPage) -> None:
    """The live region speaks a few times in a turn of hundreds of tokens."""
    chat.evaluate(
        """() => {
          window.heard = [];
          const region = document.getElementById('announcer');
          new MutationObserver(() => heard.push(region.textContent))
            .observe(region, {childList: true, characterData: true, subtree: true});
        }"""
    )
    chat.send("Open a ticket silence=0 rate=400 words=200")
    chat.wait_for("done")
    chat.page.wait_for_function("heard.at(-1)?.startsWith('Done.')")
    heard: list[str] = chat.evaluate("heard")
    assert 2 <= len(heard) <= 8
    assert any("Open ticket: Done." in words for words in heard)
