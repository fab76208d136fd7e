"""The page as its users have it: the Emulator Suite, a real Chromium, a network that can be cut."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Route

from dev import browser, control, page, processes, suite
from dev.project import ROOT, ProblemError
from tests.support.page import ChatPage, Stack
from tests.support.patience import wait_until
from tests.support.payments import PaymentServer
from tests.support.server import SOON_SECONDS
from tests.support.tcp_proxy import CuttingProxy


@pytest.fixture(scope="session")
def stack(firestore_emulator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The one suite of all tests of the page."""
    assert firestore_emulator  # says in one line why not, where there is none
    announce = tmp_path_factory.mktemp("control") / "local.json"
    try:
        page.build()
        with PaymentServer() as payments:
            ports = suite.choose_ports()
            settings = {
                "ALLOWED_ORIGINS": f"http://127.0.0.1:{ports['hosting']}",
                "DEMO_PAYMENTS_URL": payments.url,
                "LEASE_SECONDS": SOON_SECONDS,
            }
            with (
                suite.running(ports=ports, settings=settings) as running,
                CuttingProxy(running.host("functions")) as network,
            ):
                program = control.program(
                    ports["hosting"], ports["firestore"], announce, payments.url
                )
                environ = {**os.environ, processes.MARK_VARIABLE: running.mark}
                with subprocess.Popen(program, cwd=ROOT, env=environ) as process:
                    try:
                        yield Stack(running, network, payments, _announced(announce))
                    finally:
                        process.kill()
    except ProblemError as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))


def _announced(path: Path) -> str:
    wait_until(lambda: path.exists() and path.read_text() != "")
    return str(json.loads(path.read_text())["control"]).rpartition(":")[2]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One Chromium for all tests; each has a context of its own, and so a guest of its own."""
    try:
        with browser.running() as running:
            yield running
    except ProblemError as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(problem))


@pytest.fixture
def context(chromium: Browser, stack: Stack) -> Iterator[BrowserContext]:
    """A browser of one user, whose page calls the functions through the network of the test."""

    def through_the_network(route: Route) -> None:
        response = route.fetch()
        direct = stack.suite.host("functions")
        route.fulfill(
            response=response, body=response.text().replace(direct, stack.network.address)
        )

    with chromium.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.route("**/__/firebase/init.js*", through_the_network)
        yield context
        stack.network.cut_after_bytes(None)
        stack.network.unstall()


@pytest.fixture
def chat(context: BrowserContext, stack: Stack) -> Iterator[ChatPage]:
    """The page, signed in and ready. It must not have thrown by the end."""
    thrown: list[str] = []
    tab = context.new_page()
    tab.on("pageerror", lambda error: thrown.append(str(error)))
    yield ChatPage(tab, stack.url).open()
    assert thrown == []


@pytest.fixture
def second_tab(context: BrowserContext, stack: Stack) -> ChatPage:
    """Another tab of the same user, not opened yet."""
    return ChatPage(context.new_page(), stack.url)
