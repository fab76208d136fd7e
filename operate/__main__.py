"""`python -m operate`: parse the words, read, print."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from functions.wire.text import has_surrogates

LISTS = ("running", "waiting", "in-doubt", "stuck")
NO_STORE = (
    "name the project with --project (and sign in with `gcloud auth application-default login`), "
    "or set FIRESTORE_EMULATOR_HOST for the emulator's"
)

SIGN_IN = "no credentials that Google takes: sign in with `gcloud auth application-default login`"


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; its exit status: 0, 1 when it cannot be done, 2 for bad words."""
    parser = _parser()
    given = parser.parse_args(words)
    if any(has_surrogates(word) for word in vars(given).values() if isinstance(word, str)):
        parser.error("the words hold bytes that are no UTF-8")
    emulator = os.environ.get("FIRESTORE_EMULATOR_HOST")
    project = given.project or os.environ.get("GCLOUD_PROJECT") or (emulator and "demo-agent-turns")
    if not project:
        parser.error(NO_STORE)
    # Before the package is imported: it reads its settings once, and the client its project.
    os.environ["GCLOUD_PROJECT"] = project
    from google.auth.exceptions import GoogleAuthError

    from functions.errors import Answered
    from operate import commands

    try:
        print(f"# project {project}{' on the emulator' if emulator else ''}", file=sys.stderr)
        for line in commands.run(given):
            print(printable(line))
    except commands.BadWords as error:
        parser.error(str(error))
    except Answered as error:  # ours, with words for a person; Google's, too, if that is behind it
        because = f" ({error.__cause__})" if error.__cause__ else ""
        print(f"{error.code}: {error.message}{because}", file=sys.stderr)
        return 1
    except GoogleAuthError as error:
        print(f"{SIGN_IN}\n{error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `| head`
        return 0
    return 0


def printable(line: str) -> str:
    """A line without what a terminal or a reader's eye would obey: a user's words may hold it."""
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in line])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m operate", description="Look at turns, on the emulator or in a project."
    )
    parser.add_argument("--project", help="the Firebase project; default: GCLOUD_PROJECT")
    commands = parser.add_subparsers(dest="command", required=True)

    timeline = commands.add_parser("timeline", help="what became of a turn, from its journal")
    _names_a_turn(timeline)
    timeline.add_argument(
        "--text", action="store_true", help="with prompt, text, arguments and results"
    )

    cost = commands.add_parser("cost", help="what a turn wrote, stores, and takes to read")
    _names_a_turn(cost)

    lists = commands.add_parser("list", help="turns that run, wait, are in doubt or stuck")
    lists.add_argument("which", choices=LISTS)
    lists.add_argument("--limit", type=_count, default=100, help="at most so many (100)")

    annotate = commands.add_parser("annotate", help="add a note to a step that is in doubt")
    _names_a_turn(annotate)
    annotate.add_argument("--step", type=int, required=True, help="its position, from 1")
    annotate.add_argument("--by", required=True, help="who says so")
    annotate.add_argument("--note", required=True, help="what is known of its effect")

    delete = commands.add_parser("delete", help="delete all that a user has, for good")
    delete.add_argument("--uid", required=True)
    delete.add_argument("--yes", action="store_true", help="without it, nothing is deleted")
    return parser


def _count(word: str) -> int:
    """How many. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}", word):
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    return int(word)


def _names_a_turn(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", nargs="?", help="the turn's key, as in log lines and lists")
    parser.add_argument("--uid", help="instead of the key: the user …")
    parser.add_argument("--turn", help="… and the turn's id")


if __name__ == "__main__":
    sys.exit(main())
