"""Kill containers at random, and count: `python -m dev.kills --count 200 --seed 1`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from dev import command, containers
from dev.kills import kill, report
from dev.kills.subject import SUBJECTS, Subject
from dev.project import LOCAL_PROJECT, ROOT
from dev.survive.client import RefusedError

_TRIES = 10
_REPORTS = ROOT / "docs" / "reports"


def main() -> int:
    """Run it; 1 if anything went wrong with any turn."""
    parser = argparse.ArgumentParser(prog="python -m dev.kills", description=__doc__)
    parser.add_argument(
        "--agent", choices=SUBJECTS, default="tools", help="what is killed (default: %(default)s)"
    )
    parser.add_argument("--count", type=int, default=200, help="kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: %(default)s)")
    parser.add_argument(
        "--at-once", type=int, default=4, help="turns in flight (default: %(default)s)"
    )
    parser.add_argument(
        "--report", type=Path, nargs="?", const=_REPORTS, metavar="FILE", help="write a report"
    )
    options = parser.parse_args()
    subject = SUBJECTS[options.agent]
    counted = report.tally(subject, _run(subject, options.count, options.seed, options.at_once))
    print(f"\n{report.table(counted)}\n\n{report.verdict(counted)}")
    for number, problems in counted.wrong:
        print(f"turn {number}: {'; '.join(problems)}")
    if options.report is not None:
        file = options.report
        if file == _REPORTS:
            file /= "kills.md" if subject.name == "tools" else f"kills-{subject.name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            report.document(subject, counted, count=options.count, seed=options.seed), "utf-8"
        )
    return 1 if counted.wrong else 0


def _run(subject: Subject, count: int, seed: int, at_once: int) -> list[kill.Ended]:
    with (
        tempfile.TemporaryDirectory() as folder,
        containers.emulator() as emulator,
        containers.function(
            "start_turn", emulator.address, kill.SETTINGS, subject.source
        ) as starter,
        containers.function(
            "resume_turn", emulator.address, kill.SETTINGS, subject.source
        ) as resumer,
    ):
        os.environ["FIRESTORE_EMULATOR_HOST"] = emulator.address
        from google.cloud.firestore import Client

        site = kill.Site(
            subject,
            address=emulator.address,
            storage=Client(project=LOCAL_PROJECT),
            starter=starter,
            resumer=resumer,
            folder=Path(folder),
        )
        seconds = _undisturbed(site)
        ended: list[kill.Ended] = []
        while missing := count - sum(len(one.found) for one in ended):
            # More than once, for a turn may end before its second container is killed.
            turns = kill.plan(missing, seed, seconds, first=len(ended))
            ended += _play(site, turns, at_once)
        return ended


def _undisturbed(site: kill.Site) -> float:
    """How long a turn takes that nothing happens to. The first of them is run for nothing: a call
    of a cold emulator may take longer than a lease.

    Raises:
        DisturbedError: this machine is too busy for any of them.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(RefusedError, kill.DisturbedError):
            site.uninterrupted()
            return site.uninterrupted()
    raise kill.DisturbedError("no turn keeps its lease on this machine")


def _play(site: kill.Site, turns: Sequence[kill.Turn], at_once: int) -> list[kill.Ended]:
    """Run turns, so many at once, and say what became of each."""
    ended = []
    with ThreadPoolExecutor(at_once) as lanes:
        try:
            for future in as_completed([lanes.submit(site.run, turn) for turn in turns]):
                one = future.result()
                ended.append(one)
                mark = "WRONG: " + "; ".join(one.problems) if one.problems else "ok"
                print(f"turn {one.turn.number}: {mark}", flush=True)
        finally:
            lanes.shutdown(cancel_futures=True)
    return sorted(ended, key=lambda one: one.turn.number)


if __name__ == "__main__":
    sys.exit(command.status(main))
