"""The page in headless Chromium, on the Emulator Suite: whatever breaks, the text is the same."""

from __future__ import annotations

import json
import random
import time

import pytest
from playwright.sync_api import BrowserContext, Request, Route

from tests.support.page import WAIT_MS, ChatPage, Stack, journal
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(400)]

WORK = (
    "Open a ticket, look up the order (query={seconds}) and charge me 19 dollars"
    " silence=0 rate=50 words=40"
)
STORY = "Tell me about leases silence=0 rate=25 words=250"
"""Ten seconds: whatever befalls it befalls it in its midst, on a busy machine, too."""
CUTS = 50


def assert_complete(stack: Stack, chat: ChatPage) -> None:
    """The page shows what the journal says, to the letter."""
    told = journal(stack.suite, chat)
    assert told.ended is not None
    assert told.text
    assert chat.text() == told.text


def test_a_whole_turn_of_tools(stack: Stack, chat: ChatPage) -> None:
    """Tokens, three tools with their outcomes, the end; one ticket, one charge."""
    before = stack.payments.effects()["charges"]
    chat.send(WORK.format(seconds=3))
    chat.wait_for("done")
    chat.page.wait_for_selector("#timeline li[data-kind=rest]", state="attached")
    for tool in ("Open ticket", "Slow query", "Charge"):
        assert chat.step(tool).get_attribute("data-status") == "ok"
    assert "19.00 dollars are charged to order A-17." in chat.text()
    assert chat.text().split() == journal(stack.suite, chat).text.split()
    assert stack.payments.effects()["charges"] == before + 1
    kinds = [kind for kind, _ in chat.timeline()]
    assert kinds.count("tool_end") == 3
    assert kinds[-2:] == ["done", "rest"]
    # It is the stack's first turn: a start that met a storage not awake yet is posted again.
    assert {call.split(" · ")[0] for call in chat.calls()} == {"start_turn"}


@pytest.mark.timeout(1200)
def test_cut_at_fifty_random_bytes(stack: Stack, chat: ChatPage) -> None:
    """Sockets that end anywhere, in headers and in mid-frame: each answer is the journal's."""
    seed = random.randrange(2**32)
    choose = random.Random(seed)
    first = len(stack.network.cuts)
    turns = 0
    while len(stack.network.cuts) - first < CUTS:
        turns += 1
        chat.send(f"Turn {turns} of seed {seed} silence=0 rate=2000 words=300")
        deadline = time.monotonic() + 3 * PATIENCE_SECONDS
        armed_at = shown_at = -1  # how many cuts there were, how much was shown
        while chat.turns.last.get_attribute("data-status") != "done":
            assert time.monotonic() < deadline, f"seed {seed}: {chat.timeline()[-20:]}"
            cuts, shown = len(stack.network.cuts), len(chat.text())
            # One cut for each stretch of the text, or the client would rightly give up.
            if cuts > armed_at and shown > shown_at:
                armed_at, shown_at = cuts, shown
                stack.network.cut_after_bytes(choose.randrange(1, 4000))
            chat.page.wait_for_timeout(20)
        stack.network.cut_after_bytes(None)
        assert_complete(stack, chat)
    assert chat.turns.count() == turns


def test_reload_in_mid_turn(stack: Stack, chat: ChatPage) -> None:
    """The same bubble goes on from its last event, and nothing is started again."""
    turn_id = chat.send(STORY)
    chat.wait_for_text(150)
    chat.reload()
    assert (chat.turns.count(), chat.turn_id()) == (1, turn_id)
    assert len(chat.text()) >= 150
    chat.wait_for("done")
    assert_complete(stack, chat)
    assert all(call.startswith("resume_turn after ") for call in chat.calls())
    assert len(chat.calls()) >= 1
    chat.reload()
    assert chat.timeline() == [], "a turn that is over asks for nothing"


def test_signing_out_leaves_nothing_in_the_browser(chat: ChatPage) -> None:
    """What was said stays with nobody: the next guest of the same browser finds no word of it."""
    chat.send("My secret is safe silence=0 rate=100 words=20")
    chat.wait_for("done")
    before = chat.uid()
    chat.page.get_by_role("button", name="Sign out").click()
    chat.page.wait_for_function(
        """uid => document.querySelector('body[data-ready] #account .who')?.title !== uid
            && document.querySelector('body[data-ready]')""",
        arg=before,
    )
    assert chat.uid() != before
    assert chat.turns.count() == 0
    assert "secret" not in chat.evaluate("JSON.stringify(localStorage)")


def test_signing_out_is_for_every_tab(chat: ChatPage, second_tab: ChatPage) -> None:
    """The other tab does not go on as a guest that is gone: both are the same new one."""
    chat.send("My secret is safe silence=0 rate=100 words=20")
    chat.wait_for("done")
    before = chat.uid()
    second_tab.open()
    chat.page.get_by_role("button", name="Sign out").click()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while chat.uid() == before or chat.uid() != second_tab.uid():
        assert time.monotonic() < deadline, "they did not become the same guest"
        chat.page.wait_for_timeout(200)
    assert (chat.turns.count(), second_tab.turns.count()) == (0, 0)


def test_a_wait_that_the_server_asks_for_is_explained(chat: ChatPage) -> None:
    """The reader learns why nothing comes, and when it goes on."""

    def busy(route: Route) -> None:
        headers = {"Retry-After": "100", "Access-Control-Expose-Headers": "Retry-After"}
        headers["Access-Control-Allow-Origin"] = "*"
        said = {"code": "too_many_turns", "message": "you started too many turns"}
        route.fulfill(status=429, headers=headers, json={"error": said})

    chat.page.route("**/start_turn", busy)
    chat.send("Hello silence=0 rate=100 words=20")
    foot = chat.turns.last.locator(".foot")
    foot.get_by_text("you started too many turns").wait_for()
    assert "Tried again at" in foot.inner_text()


FORBIDDEN = """
    for (const name of ['localStorage', 'sessionStorage', 'indexedDB'])
      Object.defineProperty(window, name, {
        get() { throw new DOMException('Access is denied.', 'SecurityError'); },
      });"""


def test_a_browser_that_forbids_storage(stack: Stack, second_tab: ChatPage) -> None:
    """All of the page works but its memory: turns, a session, a new chat; nothing is thrown."""
    thrown: list[str] = []
    second_tab.page.on("pageerror", lambda error: thrown.append(str(error)))
    second_tab.page.add_init_script(FORBIDDEN)
    second_tab.open()
    for count in (1, 2):
        second_tab.send("Remember this silence=0 rate=400 words=20")
        second_tab.wait_for("done")
        assert_complete(stack, second_tab)
        assert second_tab.turns.count() == count
    second_tab.press("#new")
    assert second_tab.turns.count() == 0
    second_tab.reload()
    assert (second_tab.turns.count(), thrown) == (0, [])


def test_a_step_status_of_a_newer_server(chat: ChatPage) -> None:
    """It is shown in its own words, and the turn goes on to its end."""

    def newer(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=response.text().replace('"ok"', '"set_aside"'))

    chat.page.route("**/start_turn", newer)
    chat.send("Open a ticket silence=0 rate=400 words=20")
    chat.wait_for("done")
    assert chat.step("Open ticket").locator(".step-state").text_content() == "set aside"


def test_what_is_to_be_approved_reads_as_it_is(chat: ChatPage) -> None:
    """No character in one argument turns around how another one reads, or hides it."""
    long = "very " * 40
    args = {"note": "\u202e", "why": long + "long", "cents": 1900}
    call = {"step": 1, "tool": "refund", "args": args}
    asked = json.dumps({**call, "expiresAt": "2099-06-15T12:00:00Z"})
    events = f":keep-alive\n\nid: 1\nevent: tool_pending\ndata: {asked}\n\n"
    chat.page.route(
        "**/start_turn",
        lambda route: route.fulfill(
            content_type="text/event-stream",
            headers={"Access-Control-Allow-Origin": "*"},
            body=events,
        ),
    )
    chat.send("Refund me")
    chat.wait_for("waiting")
    card = chat.step("Refund")
    shown = card.locator(".step-args")
    assert shown.inner_text() == rf"note: \u202e, why: {long}long, cents: 1900"
    assert shown.evaluate("shown => shown.scrollWidth <= shown.clientWidth")
    assert "\u202e" not in card.inner_html()
    assert "waits until Jun 15" in card.inner_text()  # a time alone would be today's


def test_the_enter_that_takes_a_word_sends_nothing(chat: ChatPage) -> None:
    """Of an input method, as Safari tells it: by the code 229, after the composition's end."""
    chat.page.fill("#prompt", "nihon")
    enter = "{key: 'Enter', keyCode: %d, bubbles: true, cancelable: true}"
    press = "document.getElementById('prompt').dispatchEvent(new KeyboardEvent('keydown', %s))"
    chat.evaluate(press % enter % 229)
    assert (chat.turns.count(), chat.page.input_value("#prompt")) == (0, "nihon")
    chat.evaluate(press % enter % 13)
    assert (chat.turns.count(), chat.page.input_value("#prompt")) == (1, "")


def test_hidden_tab(stack: Stack, chat: ChatPage) -> None:
    """A tab that draws no frames has its whole text at the end, and is right when it is shown."""
    chat.send(STORY)
    chat.wait_for_text(50)
    chat.hide()
    chat.page.wait_for_function(
        "document.querySelector('.turn:last-child').dataset.status === 'done'", polling=100
    )
    assert_complete(stack, chat)
    chat.unhide()
    assert_complete(stack, chat)


def test_frozen_tab(stack: Stack, chat: ChatPage, context: BrowserContext) -> None:
    """A page frozen in mid-turn drops its old connection, and goes on when it is woken."""
    chat.send(STORY)
    chat.wait_for_text(50)
    session = context.new_cdp_session(chat.page)
    session.send("Page.setWebLifecycleState", {"state": "frozen"})
    stack.network.cut(tell_server=False)
    time.sleep(1)  # a stretch of the answer is told to nobody
    session.send("Page.setWebLifecycleState", {"state": "active"})
    chat.wait_for("done")
    assert_complete(stack, chat)


def test_offline_and_online(stack: Stack, chat: ChatPage, context: BrowserContext) -> None:
    """Offline is said; back online the turn goes on at once."""
    chat.send(STORY)
    chat.wait_for_text(50)
    context.set_offline(True)
    stack.network.cut()
    chat.wait_for("reconnecting")
    context.set_offline(False)
    chat.wait_for("done")
    assert_complete(stack, chat)


def test_a_silent_line_is_left(stack: Stack, chat: ChatPage) -> None:
    """Nothing comes and nothing closes: after ten silent seconds the client takes another line."""
    chat.send("Tell me about leases silence=0 rate=10 words=120")
    chat.wait_for_text(50)
    chat.press("#silence")
    chat.wait_for("done")
    assert_complete(stack, chat)
    assert any(kind == "drop" and words.startswith("idle") for kind, words in chat.timeline())


def test_the_cut_button(stack: Stack, chat: ChatPage) -> None:
    """The page's own button cuts the line; the turn goes on by a resume after the last event."""
    chat.send(STORY)
    chat.wait_for_text(50)
    chat.press("#cut")
    chat.wait_for("done")
    assert_complete(stack, chat)
    assert [call.split()[0] for call in chat.calls()] == ["start_turn", "resume_turn"]


def test_the_container_is_killed(stack: Stack, chat: ChatPage) -> None:
    """SIGKILL in the midst of a tool: another container finishes, and the charge stays one."""
    before = stack.payments.effects()["charges"]
    chat.send(WORK.format(seconds=9))
    chat.page.wait_for_selector(".step[aria-label='Charge'][data-status=ok]")
    chat.press("#kill")
    chat.wait_for("done")
    assert chat.text().split() == journal(stack.suite, chat).text.split()
    assert stack.payments.effects()["charges"] == before + 1
    assert any(kind == "rewind" for kind, _ in chat.timeline())


def test_two_tabs_on_one_turn(stack: Stack, chat: ChatPage, second_tab: ChatPage) -> None:
    """A turn shows in a tab opened later, and one begun there shows here, with the same text."""
    turn_id = chat.send(STORY)
    chat.wait_for_text(50)
    second_tab.open()
    assert second_tab.turn_id() == turn_id
    for tab in (chat, second_tab):
        tab.wait_for("done")
        assert_complete(stack, tab)
    other = second_tab.send("And another silence=0 rate=200 words=30")
    for tab in (chat, second_tab):
        tab.page.wait_for_selector(f"[data-turn='{other}'][data-status=done]")
        assert_complete(stack, tab)


def test_stop_from_the_second_tab(stack: Stack, chat: ChatPage, second_tab: ChatPage) -> None:
    """One end for both, and the same text; what was stopped stays so after a reload."""
    chat.send("Tell me about leases silence=0 rate=10 words=400")
    chat.wait_for_text(50)
    second_tab.open()
    second_tab.press("#stop")
    for tab in (second_tab, chat):
        tab.wait_for("cancelled")
        assert_complete(stack, tab)
    chat.reload()
    chat.wait_for("cancelled")
    assert_complete(stack, chat)


def test_a_new_chat_is_new_for_good(chat: ChatPage, second_tab: ChatPage) -> None:
    """The turn that runs is left in both tabs, and comes back in neither."""
    chat.send("Tell me about leases silence=0 rate=10 words=400")
    chat.wait_for_text(50)
    second_tab.open()
    second_tab.wait_for_text(50)
    chat.press("#new")
    for tab in (chat, second_tab):
        tab.page.wait_for_selector(".turn", state="detached")
        tab.reload()
        assert tab.turns.count() == 0


def test_approval(stack: Stack, chat: ChatPage) -> None:
    """The refund waits for a person, also over a reload, and takes place once it is approved."""
    before = stack.payments.effects()["refunds"]
    chat.send("Refund me 19 dollars silence=0 rate=100 words=20")
    chat.wait_for("waiting")
    assert stack.payments.effects()["refunds"] == before
    chat.reload()
    chat.wait_for("waiting")
    # As a person does who has no mouse.
    chat.step("Refund").get_by_role("button", name="Approve").press("Enter")
    chat.wait_for("done")
    assert chat.step("Refund").get_attribute("data-status") == "ok"
    assert "19.00 dollars are refunded" in chat.text()
    assert "reconnect" not in chat.turns.last.locator(".foot").inner_text(), "nothing was lost"
    assert stack.payments.effects()["refunds"] == before + 1


def test_denial(stack: Stack, chat: ChatPage, second_tab: ChatPage) -> None:
    """Denied in one tab, it is denied in the other; nothing is paid, and the answer says so."""
    before = stack.payments.effects()["refunds"]
    chat.send("Refund me 19 dollars silence=0 rate=100 words=20")
    chat.wait_for("waiting")
    second_tab.open()
    second_tab.wait_for("waiting")
    second_tab.step("Refund").get_by_role("button", name="Deny").click()
    second_tab.wait_for("done")
    assert "The refund was denied." in second_tab.text()
    chat.reload()
    chat.wait_for("done")
    assert chat.step("Refund").get_attribute("data-status") == "over"
    assert stack.payments.effects()["refunds"] == before


def test_two_thousand_tokens_a_second(stack: Stack, chat: ChatPage) -> None:
    """At most one paint of the text per frame, however fast the tokens come, and the exact text."""
    chat.evaluate(
        """() => {
          window.counted = {frames: 0, paints: 0};
          const frame = () => { counted.frames += 1; requestAnimationFrame(frame); };
          requestAnimationFrame(frame);
          new MutationObserver(() => counted.paints += 1).observe(
            document.querySelector('#transcript'),
            {subtree: true, childList: true, characterData: true});
        }"""
    )
    chat.send("Tell me everything silence=0 rate=2000 words=6000")
    chat.wait_for("done")
    counted = chat.evaluate("counted")
    assert counted["paints"] <= counted["frames"] + 5  # the start's, the end's: at once
    assert_complete(stack, chat)


def test_the_lab_chunk_drop(chat: ChatPage) -> None:
    """Asked again, everything takes place twice; resumed, once."""
    chat.open("labs")
    chat.press("#run-chunk-drop")
    chat.page.wait_for_selector("#run-chunk-drop:not(:disabled)")
    outcome = chat.page.locator("#lab-chunk-drop .outcome").text_content()
    assert outcome == "Sent again: 2 tickets, 2 charges. Resumed: 1 ticket, 1 charge."
    naive, ours = (
        int(side.locator("dd").first.text_content() or "")
        for side in chat.page.locator("#lab-chunk-drop .side").all()
    )
    assert naive > ours


def test_the_lab_idle_timeout(chat: ChatPage) -> None:
    """The pings keep a line open where they count; where not, the cut costs nothing."""
    chat.open("labs")
    chat.page.locator("#lab-idle-timeout").get_by_label("12 s").check()
    chat.press("#run-idle-timeout")
    chat.page.wait_for_selector("#run-idle-timeout:not(:disabled)", timeout=2 * WAIT_MS)
    outcome = chat.page.locator("#lab-idle-timeout .outcome").text_content() or ""
    assert outcome.startswith("Both answers are the same. The proxy never cut where")
    assert "and cut once where they do not" in outcome


_NOTE_WHEN_ENABLED = """() => {
  const run = document.getElementById('run-idle-timeout');
  new MutationObserver(() => { if (!run.disabled) window.enabledAt = performance.now(); })
      .observe(run, {attributes: true});
}"""
_LAST_ANSWER = """Math.max(...performance.getEntriesByType('resource')
    .filter(each => each.name.includes('_turn')).map(each => each.responseEnd))"""


def test_a_lab_that_fails_leaves_nothing_running(chat: ChatPage) -> None:
    """One of its two turns is refused: it may be run again once the other is over, not before."""
    chat.open("labs")
    chat.evaluate(_NOTE_WHEN_ENABLED)
    running: set[Request] = set()
    refused: list[Route] = []

    def begins(request: Request) -> None:
        running.add(request)

    def ends(request: Request) -> None:
        running.discard(request)

    def refuse_one(route: Route) -> None:
        if refused:
            return route.continue_()
        refused.append(route)
        said = {"error": {"code": "turn_conflict", "message": "another request has this id"}}
        headers = {"Access-Control-Allow-Origin": "*"}
        return route.fulfill(status=409, headers=headers, json=said)

    chat.page.on("request", begins)
    chat.page.on("requestfinished", ends)
    chat.page.on("requestfailed", ends)
    chat.page.route("**/start_turn", refuse_one)
    chat.page.locator("#lab-idle-timeout").get_by_label("25 s").check()
    chat.press("#run-idle-timeout")
    chat.page.wait_for_selector("#run-idle-timeout:not(:disabled)", timeout=2 * WAIT_MS)
    outcome = chat.page.locator("#lab-idle-timeout .outcome").text_content() or ""
    assert "another request has this id" in outcome
    deadline = time.monotonic() + PATIENCE_SECONDS
    while running:
        assert time.monotonic() < deadline, [request.url for request in running]
        chat.page.wait_for_timeout(50)
    # Not the 25 s of silence later, which the other turn had to sit out.
    assert chat.evaluate(_LAST_ANSWER) - chat.evaluate("enabledAt") < 12_000


RECORD = """() => {
  const turn = document.querySelector('.turn:last-child');
  const note = () => {
    const word = turn.querySelector('.state').textContent;
    if (words.at(-1) !== word) words.push(word);
  };
  window.words = [];
  new MutationObserver(note).observe(turn, {subtree: true, childList: true, characterData: true});
}"""


@pytest.mark.parametrize(
    ("prompt", "status"),
    [(STORY, "streaming"), ("Refund me 19 dollars silence=0 rate=100 words=20", "waiting")],
)
def test_a_stop_says_stopping_until_the_turn_is_stopped(
    chat: ChatPage, prompt: str, status: str
) -> None:
    """Not "Answering" or "Waiting for you" once more in between; and no connection was lost."""
    chat.send(prompt)
    chat.wait_for_text(20)
    chat.wait_for(status)
    chat.evaluate(RECORD)
    chat.press("#stop")
    chat.wait_for("cancelled")
    words = chat.evaluate("words")
    assert words[words.index("Stopping") :] == ["Stopping", "Stopped"]
    assert "reconnect" not in chat.turns.last.locator(".foot").inner_text()
