"""The story: a turn whose client is cut off, and whose container is killed. Played and recorded."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from dev import containers
from dev.containers import Container
from dev.survive.check import Check, compare
from dev.survive.client import Client, RefusedError
from dev.survive.proxy import Cut, Proxy
from dev.survive.storage import Commit, Lease, Storage

LEASE_SECONDS = 3.0
HEARTBEAT_SECONDS = 0.5
"""Shorter than the defaults (9 and 4), so that the story fits into a picture."""

PROMPT = "Tell me what survives. rate=20 silence=1.2 words=96"

_CUT_AFTER_TOKENS = 24
_AWAY_SECONDS = 0.7
_KILL_AFTER_TOKENS = 66
_LEASE_READ_SECONDS = 0.5
"""How long after the kill the lease is read: a renewal on its way has arrived by then."""
_PATIENCE_SECONDS = 30.0

A, B, CLIENT, PROXY = "container A", "container B", "client", "proxy"


@dataclass(frozen=True)
class Clock:
    """The instant from which the story counts, on this machine's two clocks."""

    monotonic: float
    wall: float

    @classmethod
    def started(cls) -> Clock:
        """Start counting now."""
        return cls(time.monotonic(), time.time())

    def seconds(self, at: float | datetime) -> float:
        """Return when it was in the story; a `datetime` is the emulator's, on this machine."""
        if isinstance(at, datetime):
            return at.timestamp() - self.wall
        return at - self.monotonic


@dataclass(frozen=True)
class Run:
    """All that was recorded."""

    clock: Clock
    client: Client
    cut: Cut
    killed_at: float
    lapsing: Lease
    """The lease of the killed container."""
    commits: list[Commit]
    check: Check


def play() -> Run:
    """Play the story and tell it, line by line.

    Raises:
        ProblemError: this machine lacks the emulator or Java.
        RuntimeError: it went otherwise than it should.
    """
    with _cast() as (storage_address, a, b):
        _warm_up(a, b)
        client = Client()
        storage = Storage(storage_address, client.turn_id)
        with Proxy(a.port) as proxy:
            clock = Clock.started()
            cut = _streamed_and_cut(client, proxy, clock)
        time.sleep(_AWAY_SECONDS)
        _resumed(client, b, clock)
        killed_at, lapsing = _killed(client, a, storage, clock)
        commits = _taken_over(client, storage, lapsing, clock)
        check = _checked(client, b, clock)
        return Run(clock, client, cut, killed_at, lapsing, commits, check)


@contextlib.contextmanager
def _cast() -> Iterator[tuple[str, Container, Container]]:
    settings = {
        "LEASE_SECONDS": f"{LEASE_SECONDS:g}",
        "HEARTBEAT_SECONDS": f"{HEARTBEAT_SECONDS:g}",
    }
    print("Starting the Firestore emulator and two containers …", flush=True)
    with (
        containers.emulator() as emulator,
        containers.function("start_turn", emulator.address, settings) as a,
        containers.function("resume_turn", emulator.address, settings) as b,
    ):
        yield emulator.address, a, b


def _warm_up(a: Container, b: Container) -> None:
    """Run another turn, so that the picture does not pay for imports and a cold emulator."""
    first = Client()
    until = time.monotonic() + _PATIENCE_SECONDS
    while not _starts(first, a):
        if time.monotonic() > until:
            raise RuntimeError(f"no turn could be started within {_PATIENCE_SECONDS:g} s")
    first.wait("the first turn's end", lambda: first.fold.ended is not None, seconds=60)
    second = Client(first.turn_id)
    second.resume(b.port)
    second.wait("its replay", lambda: second.fold.ended is not None, seconds=60)


def _starts(client: Client, container: Container) -> bool:
    try:
        client.start(container.port, "rate=5000 silence=0 words=1")
    except RefusedError:
        return False
    return True


def _streamed_and_cut(client: Client, proxy: Proxy, clock: Clock) -> Cut:
    _tell(0, CLIENT, f"asks container A: “{PROMPT}”")
    client.start(proxy.port, PROMPT)
    _wait_for_tokens(client, 1)
    _tell(clock.seconds(client.events("token")[0].at), CLIENT, "has the first token")
    _wait_for_tokens(client, _CUT_AFTER_TOKENS)
    cut = proxy.cut()
    _wait(client, "the cut", lambda: not client.connected)
    _tell(
        clock.seconds(cut.at),
        PROXY,
        f"cuts the client's socket {len(client.left_over)} bytes into an event; "
        f"the last whole one has id {client.fold.cursor}",
    )
    return cut


def _resumed(client: Client, b: Container, clock: Clock) -> None:
    cursor, before = client.fold.cursor, len(client.events("token"))
    client.resume(b.port)
    _tell(
        clock.seconds(client.requests[-1].at),
        CLIENT,
        f"resumes at container B with Last-Event-ID: {cursor}",
    )
    _wait_for_tokens(client, before + 1)
    missed = missed_ids(client)
    _tell(
        clock.seconds(client.events("token")[before].at),
        CLIENT,
        f"has what it missed, at once: events {missed[0]} to {missed[-1]}",
    )
    if missed != list(range(cursor + 1, cursor + 1 + len(missed))):
        raise RuntimeError(f"after event {cursor} came {missed}")


def missed_ids(client: Client) -> list[int]:
    """Return the ids of the events that came first, all at once, when the client resumed."""
    resumed = [one for one in client.received if one.request == 1 and one.frame is not None]
    return [one.frame.id for one in resumed if one.frame and one.at == resumed[0].at]


def _killed(client: Client, a: Container, storage: Storage, clock: Clock) -> tuple[float, Lease]:
    _wait_for_tokens(client, _KILL_AFTER_TOKENS)
    killed_at = a.kill()
    _tell(clock.seconds(killed_at), A, "is killed: SIGKILL")
    time.sleep(_LEASE_READ_SECONDS)
    return killed_at, storage.lease()


def _taken_over(client: Client, storage: Storage, lapsing: Lease, clock: Clock) -> list[Commit]:
    _wait(client, "the rewind", lambda: bool(client.events("rewind")))
    (rewind,) = client.events("rewind")
    _tell(clock.seconds(lapsing.lapses_at), A, "its lease lapses")
    taken = next(one for one in storage.commits() if one.chunk.epoch > lapsing.epoch)
    _tell(clock.seconds(taken.at), B, f"takes the lease: epoch {taken.chunk.epoch}")
    data = rewind.frame.data if rewind.frame else {}
    _tell(
        clock.seconds(rewind.at),
        B,
        f"sends rewind: back to event {data['to']}, {data['length']} characters",
    )
    _wait(client, "the turn's end", lambda: client.fold.ended is not None)
    ended = client.received[-1]
    kind = ended.frame.type if ended.frame else ""
    if kind != "done":
        raise RuntimeError(f"the turn ended with {kind}")
    _tell(clock.seconds(ended.at), B, "sends done")
    return storage.commits()


def _checked(client: Client, b: Container, clock: Clock) -> Check:
    replay = Client(client.turn_id)
    replay.resume(b.port)
    _wait(replay, "the replay", lambda: replay.fold.ended is not None)
    check = compare(client, replay, PROMPT)
    size = sum(arrival.size for arrival in client.arrivals)
    _tell(
        clock.seconds(client.received[-1].at),
        CLIENT,
        f"had {size} bytes in {len(client.arrivals)} reads, {len(client.events('ping'))} pings,"
        f" and while connected never {_longest_silence(client):.2f} s of silence",
    )
    print(f"\nAgainst a replay of the journal: {check}.", flush=True)
    if not check.as_asked:
        print("But it is not the text that the agent has for this prompt.", flush=True)
    return check


def _longest_silence(client: Client) -> float:
    """Return the longest time between two arrivals in one answer, rounded up to 0.01 s."""
    pairs = zip(client.arrivals, client.arrivals[1:])
    gaps = [later.at - one.at for one, later in pairs if one.request == later.request]
    return math.ceil(max(gaps) * 100) / 100


def _wait_for_tokens(client: Client, count: int) -> None:
    _wait(client, f"token {count}", lambda: len(client.events("token")) >= count)


def _wait(client: Client, what: str, reached: Callable[[], bool]) -> None:
    client.wait(what, reached, seconds=_PATIENCE_SECONDS)


def _tell(seconds: float, who: str, what: str) -> None:
    print(f"{seconds:6.2f} s  {who:<11}  {what}", flush=True)
