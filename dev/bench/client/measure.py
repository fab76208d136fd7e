"""Run the benchmark's page in Chromium, its CPU throttled, and read the figures."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dev import browser, node
from dev.bench.client import server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession

MB = 1_000_000
_ROUNDS = 3


@dataclass(frozen=True)
class Scale:
    """How much is measured. Streams are given up after `limit_seconds`."""

    streams: Mapping[str, str]
    limit_seconds: float
    parse_megabytes: tuple[float, ...]
    throttle: int = 4


FULL = Scale(
    {
        "200 tokens/s, 15 s": "tokens=3000 rate=200",
        "2,000 tokens/s, 10 s": "tokens=20000 rate=2000",
        "a diff of 65,000 tokens at 4,000/s": "diff tokens=65000 rate=4000",
    },
    limit_seconds=60,
    parse_megabytes=(1, 2, 4),
)
QUICK = Scale(
    {"200 tokens/s": "tokens=100 rate=200", "a diff": "diff tokens=1000 rate=4000"},
    limit_seconds=20,
    parse_megabytes=(0.05, 0.1),
)


@dataclass(frozen=True)
class Stream:
    """What one page did with one stream; the names are those of `page/bench/main.ts`."""

    figures: Mapping[str, Any]
    heap: int
    """Bytes in use at the end, after a garbage collection."""
    cpu_seconds: float
    """What the page's main thread worked, waiting for a turn on the machine not counted."""

    @property
    def seconds(self) -> float:
        """How long it took, up to the limit."""
        return float(self.figures["ms"]) / 1000

    def per_second(self, name: str) -> float:
        """A count over the time it took."""
        return float(self.figures[name]) / self.seconds


@contextmanager
def bench_page() -> Iterator[tuple[Browser, str]]:
    """Build and serve the page; a browser for it, and its URL.

    Raises:
        ProblemError: there is no Node.js or no Chromium.
        CalledProcessError: the page could not be built.
    """
    with tempfile.TemporaryDirectory() as folder:
        for line in (
            ["node_modules/typescript/bin/tsc", "-p", "../client/tsconfig.build.json"],
            ["bench/build.mjs", folder],
        ):
            subprocess.run([node.locate(), *line], cwd=node.PAGE, check=True)
        with server.serving(Path(folder)) as url, browser.running() as chromium:
            yield chromium, url


def stream(chromium: Browser, url: str, who: str, prompt: str, scale: Scale) -> Stream:
    """Measure one stream in a fresh page: `who` is `ours` or `naive`."""
    with chromium.new_context(viewport={"width": 1000, "height": 800}) as context:
        page = context.new_page()
        page.set_default_timeout(1000 * (scale.limit_seconds + 60))
        page.goto(url)
        page.wait_for_function("window.bench")
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        session.send("Emulation.setCPUThrottlingRate", {"rate": scale.throttle})
        page.evaluate("who => bench[who]('tokens=200 rate=400', 5000)", who)
        before = _metrics(session)
        figures = page.evaluate(
            "([who, prompt, limit]) => bench[who](prompt, limit)",
            [who, prompt, 1000 * scale.limit_seconds],
        )
        worked = _metrics(session)["TaskDuration"] - before["TaskDuration"]
        session.send("Emulation.setCPUThrottlingRate", {"rate": 1})
        session.send("HeapProfiler.collectGarbage")
        return Stream(figures, int(_metrics(session)["JSHeapUsedSize"]), worked)


def _metrics(session: CDPSession) -> dict[str, float]:
    return {
        each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]
    }


def parse(chromium: Browser, url: str, scale: Scale) -> list[tuple[float, dict[str, float]]]:
    """Measure the parsers: for each size in MB, the ms of each way. Not throttled."""
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.goto(url)
        page.wait_for_function("window.bench")
        page.evaluate("bench.parse(100000)")  # compiled by now
        page.evaluate("bench.consume(100000)")
        found = []
        for size in scale.parse_megabytes:
            ways: dict[str, float] = page.evaluate("size => bench.parse(size)", int(size * MB))
            ways["consume"] = min(
                page.evaluate("size => bench.consume(size)", int(size * MB)) for _ in range(_ROUNDS)
            )
            found.append((size, ways))
        return found
