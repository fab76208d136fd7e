"""One function for each command: what was asked, as lines."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping

from functions.errors import UnknownTurn
from functions.turns import deletion, record
from operate import annotate, cost, lists, reading, timeline

DELETE_SECONDS = 3600.0
"""An operator may wait longer than a function's caller."""


_KEY = re.compile(r"[0-9a-f]{40}")


class BadWords(Exception):
    """The command's words do not say enough; the message says what they lack."""


def run(given: Namespace) -> Iterable[str]:
    """The lines that a command prints. Raises BadWords, or an `Answered` error."""
    return COMMANDS[given.command](given)


def _timeline(given: Namespace) -> Iterable[str]:
    return timeline.lines(_found(given), text=given.text)


def _cost(given: Namespace) -> Iterable[str]:
    return cost.lines(cost.of(_found(given)))


def _list(given: Namespace) -> Iterable[str]:
    if given.which == "in-doubt":
        return lists.in_doubt(reading.steps_in_doubt(given.limit))
    if given.which == "waiting":
        return lists.turns(reading.turns(record.WAITING, given.limit))
    running = reading.turns(record.RUNNING, given.limit)
    if given.which == "running":
        return lists.turns(running)
    return lists.turns(lists.stuck([*running, *reading.turns(record.WAITING, given.limit)]))


def _annotate(given: Namespace) -> Iterable[str]:
    annotate.note(_key(given), given.step, by=given.by, text=given.note)
    return [f"noted on step {given.step}; its outcome stays in_doubt"]


def _delete(given: Namespace) -> Iterable[str]:
    if not given.yes:
        raise BadWords("this cannot be undone: say --yes as well")
    deleted = deletion.delete_owner(f"uid:{given.uid}", seconds=DELETE_SECONDS)
    yield f"deleted {deleted.turns} turns, {deleted.sessions} sessions"
    if deleted.more:
        yield "there is more: run it again"


def _found(given: Namespace) -> reading.Found:
    key = _key(given)
    found = reading.turn(key)
    if found is None:
        raise UnknownTurn(f"there is no turn {key}")
    return found


def _key(given: Namespace) -> str:
    if given.key and not (given.uid or given.turn):
        if not _KEY.fullmatch(given.key):
            raise BadWords("a turn's key is 40 of 0-9 a-f, as in log lines and lists")
        return str(given.key)
    if given.uid and given.turn and not given.key:
        return record.turn_key(f"uid:{given.uid}", given.turn)
    raise BadWords("name the turn by its key, or by --uid and --turn")


COMMANDS: Mapping[str, Callable[[Namespace], Iterable[str]]] = {
    "timeline": _timeline,
    "cost": _cost,
    "list": _list,
    "annotate": _annotate,
    "delete": _delete,
}
