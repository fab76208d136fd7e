"""`python -m dev.bench.client`: measure, and print a report. Takes a few minutes."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import datetime, timezone
from pathlib import Path

from dev.bench.client import measure, report
from dev.project import ProblemError

_TEXT = """# What a fast stream costs a page

Measured {when}: {machine}, Chromium {chromium}, its CPU throttled {throttle} times.

    {command}

{streams}

`ours` is the demo page's own bubble over `agent-turns-client`; `naive` sets the whole text anew
at every token, and scrolls, as the pages of most tutorials do. A paint is an update of the text.
Long tasks are those of over 50 ms, as the browser counts them: by the clock, so that what other
programs of the machine took counts, too. The CPU of a paint is the main thread's alone. Server and
browser share the machine. Each page showed a short stream before, to be warm.

{parsers}

In pieces of 1 KB, not throttled, the best of three (the regular expression: one). One frame of that
size by `eventsource-parser`, and by the loop that tries a regular expression on a growing buffer;
then a whole turn of small frames through the client: decoded, parsed, checked, folded.

Expected: no task of over 50 ms at 200 tokens/s, at most 60 paints a second, a parser and a client
whose time is linear in their input. {verdict}
"""


def main() -> int:
    """Measure; return an exit status, 1 if an expectation is not met."""
    parser = argparse.ArgumentParser(prog="python -m dev.bench.client", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts: does it run at all?")
    parser.add_argument("--report", type=Path, help="write the report there, as Markdown")
    options = parser.parse_args()
    scale = measure.QUICK if options.quick else measure.FULL
    load = os.getloadavg()[0]
    machine = f"{os.cpu_count()} cores ({platform.machine()}) under a load of {load:.1f} before"
    machine += f" the run, {platform.system()}"
    try:
        with measure.bench_page() as (chromium, url):
            version = chromium.version
            measured = [
                report.Measured(
                    name,
                    measure.stream(chromium, url, "ours", prompt, scale),
                    measure.stream(chromium, url, "naive", prompt, scale),
                )
                for name, prompt in scale.streams.items()
            ]
            parsed = measure.parse(chromium, url, scale)
    except ProblemError as problem:
        print(problem, file=sys.stderr)
        return 2
    unmet = report.unmet(measured, parsed)
    asked = f" --report {options.report}" if options.report else ""
    text = _TEXT.format(
        when=datetime.now(timezone.utc).date(),
        machine=machine,
        chromium=version,
        throttle=scale.throttle,
        command=f"venv/bin/python -m dev.bench.client{' --quick' if options.quick else ''}{asked}",
        streams=report.streams(measured),
        parsers=report.parsers(parsed),
        verdict="All met." if not unmet else f"**Not met:** {'; '.join(unmet)}.",
    )
    print(text)
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(text, "utf-8")
    return 0 if options.quick or not unmet else 1


if __name__ == "__main__":
    sys.exit(main())
