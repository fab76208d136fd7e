"""A headless Chromium, this machine's own, for the page's tests and the client's benchmark."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dev.project import ProblemError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def locate() -> str | None:
    """Return the path of the machine's Chromium; None if it has none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextlib.contextmanager
def running() -> Iterator[Browser]:
    """Run it; close it with all its pages.

    Raises:
        ProblemError: this machine has none.
    """
    from playwright.sync_api import sync_playwright

    path = locate()
    if path is None:
        raise ProblemError("Chromium was not found: install it (`apt install chromium`).")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()
