"""Two tabs of one guest: what one does, the other knows, and neither undoes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route

from tests.support.page import ChatPage

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(400)]


def test_what_is_stopped_before_it_began_is_begun_by_no_other_tab(
    chat: ChatPage, second_tab: ChatPage
) -> None:
    """Both wait for the time that the server named; the stop is of the turn, not of a tab."""
    starts: list[str] = []

    def busy(route: Route) -> None:
        starts.append(route.request.headers["x-stream-turn-id"])
        headers = {"Retry-After": "100", "Access-Control-Expose-Headers": "Retry-After"}
        headers["Access-Control-Allow-Origin"] = "*"
        said = {"code": "too_many_running_turns", "message": "too many turns run"}
        route.fulfill(status=429, headers=headers, json={"error": said})

    chat.page.context.route("**/start_turn", busy)
    second_tab.open()
    chat.send("Hello silence=0 rate=100 words=20")
    for tab in (chat, second_tab):
        tab.page.get_by_text("too many turns run").wait_for()
    asked = len(starts)
    chat.press("#stop")
    chat.wait_for("cancelled")
    second_tab.wait_for("cancelled")
    assert len(starts) == asked
    for tab in (chat, second_tab):
        tab.reload()
        tab.wait_for("cancelled")
    assert len(starts) == asked


def test_a_reader_elsewhere_in_the_text_stays_there(chat: ChatPage, second_tab: ChatPage) -> None:
    """Though another tab begins a turn, which is shown here, too."""
    chat.send("A long answer silence=0 rate=2000 words=600")
    chat.wait_for("done")
    chat.evaluate("document.getElementById('scroll').scrollTop = 0")
    second_tab.open()
    second_tab.send("Another silence=0 rate=2000 words=20")
    chat.page.wait_for_selector(".turn:nth-child(2)[data-status=done]")
    assert chat.evaluate("document.getElementById('scroll').scrollTop") == 0
    assert chat.page.locator("#latest").is_visible()
