"""One turn whose containers are killed, and its client, which does what the protocol asks of it."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dev import containers
from dev.containers import Container
from dev.kills import check
from dev.kills.check import State
from dev.kills.subject import Subject
from dev.survive.client import Client, RefusedError
from functions.wire.sse import Frame

if TYPE_CHECKING:
    from google.cloud.firestore import Client as Storage

LEASE_SECONDS = 1
SETTINGS = {
    "LEASE_SECONDS": str(LEASE_SECONDS),
    "FLUSH_SECONDS": "0.05",
    "HEARTBEAT_SECONDS": "0.5",
    # Nobody is there: unsigned ID tokens are read, and nobody is asked about them.
    "FIREBASE_AUTH_EMULATOR_HOST": "127.0.0.1:9",
}
STUCK_SECONDS = 40.0
"""A turn that has not ended so long after a kill is stuck."""
_POLL_SECONDS = 0.02
_UNSEEN = 0.1
"""The share of turns whose container is killed at a moment that does not wait for an event."""
_TWICE = 0.2
"""The share of turns of which the second container is killed, too."""


@dataclass(frozen=True)
class Kill:
    """When a container is killed: so many seconds after it said something new, or was asked."""

    seconds: float
    asked: bool = False


@dataclass(frozen=True)
class Turn:
    """A turn to run, and when its first container is killed, and its second."""

    number: int
    kills: tuple[Kill, ...]


@dataclass(frozen=True)
class Ended:
    """What became of a turn: how it was found after each kill, and in the end."""

    turn: Turn
    found: Sequence[State]
    state: State
    problems: Sequence[str]
    seconds: float
    """From the last kill to the end of the turn."""


def plan(count: int, seed: int, seconds: float, *, first: int = 0) -> list[Turn]:
    """Plan turns that hold `count` kills together, at moments of a turn that takes `seconds`.

    They are numbered from `first` on, and drawn by that and `seed`.
    """
    chance = random.Random(f"{seed} {first}")  # noqa: S311 - the same moments for the same seed are the point
    turns: list[Turn] = []
    while count > 0:
        asked = chance.random() < _UNSEEN
        kills = [Kill(chance.uniform(0, 2 * seconds if asked else seconds), asked=asked)]
        second = Kill(chance.uniform(0, seconds))
        if count > 1 and chance.random() < _TWICE:
            kills.append(second)
        turns.append(Turn(first + len(turns), tuple(kills)))
        count -= len(kills)
    return turns


class DisturbedError(RuntimeError):
    """A turn that nothing should happen to lost its lease: the machine was too busy."""


class Site:
    """Where turns are run: the storage, and two containers that are not killed."""

    def __init__(
        self,
        subject: Subject,
        *,
        address: str,
        storage: Storage,
        starter: Container,
        resumer: Container,
        folder: Path,
    ) -> None:
        self._subject = subject
        self._address = address
        self._storage = storage
        self._starter = starter
        self._resumer = resumer
        self._folder = folder
        self.text = ""
        """That of a turn that nothing happened to."""
        self._messages: Sequence[Any] = ()
        self._its_path = Path()

    def uninterrupted(self) -> float:
        """Run a turn that nothing happens to, keep its text, and return how long it took.

        Raises:
            DisturbedError: its owner lost the lease.
        """
        client, path = self._client(), self._path()
        begun = time.monotonic()
        client.start(self._starter.port, str(path))
        client.wait("the end", lambda: client.fold.ended is not None, seconds=STUCK_SECONDS)
        took = time.monotonic() - begun
        self.text = client.fold.text
        state = self._look(client, path)
        if state.epoch != 1:
            raise DisturbedError
        self._messages, self._its_path = state.messages, path
        wrong = check.problems(
            self._subject,
            state,
            _frames(client),
            text=self.text,
            replayed=self.text,
            uninterrupted=self.text,
        )
        if wrong:
            raise RuntimeError(f"wrong before anything was killed: {wrong}")
        return took

    def run(self, turn: Turn) -> Ended:
        """Run a turn, kill its containers, have it finished by one that lives, and check it."""
        client, path = self._client(), self._path()
        found: list[State] = []
        for kill in turn.kills:
            if client.fold.ended is not None:
                break
            cursor = client.fold.cursor
            target = _target(client)
            with self._container(target) as victim:
                ask = _ask(client, target, victim.port, path)
                if not kill.asked:
                    until = time.monotonic() + STUCK_SECONDS
                    _wait(lambda since=cursor: client.fold.cursor > since, until)  # type: ignore[misc]
                time.sleep(kill.seconds)
                killed_at = victim.kill()
                ask.join(STUCK_SECONDS)
            _wait(lambda: not client.connected, killed_at + STUCK_SECONDS)
            found.append(self._look(client, path))
        wrong = self._finish(client, path, killed_at + STUCK_SECONDS)
        seconds = time.monotonic() - killed_at
        state = self._look(client, path)
        if not wrong:
            replay = Client(client.turn_id, uid=client.uid)
            replay.resume(self._resumer.port)
            replay.wait("the end", lambda: replay.fold.ended is not None, seconds=STUCK_SECONDS)
            wrong = check.problems(
                self._subject,
                state,
                _frames(replay),
                text=client.fold.text,
                replayed=replay.fold.text,
                uninterrupted=self.text,
            )
            wrong += check.asked_twice(self._subject, found, state)
            if self._subject.remembers:
                wrong += check.other_messages(state.messages, path, self._messages, self._its_path)
        return Ended(turn, found, state, wrong, seconds)

    def _finish(self, client: Client, path: Path, until: float) -> list[str]:
        """Have the turn streamed to its end by containers that live."""
        while client.fold.ended is None:
            if time.monotonic() > until:
                return [f"stuck: no end within {STUCK_SECONDS:g} s of the kill"]
            target = _target(client)
            server = self._resumer if target == "resume_turn" else self._starter
            _ask(client, target, server.port, path).join(STUCK_SECONDS)
            _wait(lambda: not client.connected, until)
            time.sleep(_POLL_SECONDS)
        return []

    def _client(self) -> Client:
        """A client; with a user and a session of its own, if the turn is to leave messages."""
        return Client(uid=uuid.uuid4().hex if self._subject.remembers else None)

    def _container(self, target: str) -> AbstractContextManager[Container]:
        return containers.function(target, self._address, SETTINGS, self._subject.source)

    def _look(self, client: Client, path: Path) -> State:
        return check.look(self._subject, self._storage, client.turn_id, path)

    def _path(self) -> Path:
        return self._folder / uuid.uuid4().hex


def _target(client: Client) -> str:
    """A client posts its start again until the first event has come, and resumes from then on."""
    return "resume_turn" if client.fold.cursor else "start_turn"


def _ask(client: Client, target: str, port: int, path: Path) -> threading.Thread:
    """Post the start, or resume, on a thread of its own, which ends when there is an answer."""

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, RefusedError):
            if target == "start_turn":
                client.start(port, str(path))
            else:
                client.resume(port)

    thread = threading.Thread(target=ask, name="ask", daemon=True)
    thread.start()
    return thread


def _wait(reached: Callable[[], bool], until: float) -> None:
    while not reached() and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)


def _frames(client: Client) -> list[Frame]:
    return [one.frame for one in client.received if one.frame is not None]
