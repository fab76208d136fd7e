"""The turns this process owns: who runs here, who may begin, and how all are left at the end.

An owner runs on threads of its own, so that neither a slow reader nor a client that leaves can
hold it up. A container without requests gets next to no CPU; such an owner simply loses its lease,
and whoever asks for the turn next takes it over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from functions import logs
from functions.errors import AtCapacity, Draining, NotConfigured
from functions.settings import Settings
from functions.turns.program import Agent
from functions.turns.record import Record
from functions.turns.runner import Owner
from functions.turns.takeover import Taken
from functions.turns.writer import Writer

DRAIN_POLL_SECONDS = 0.02


class Owners:
    """The turns this process owns or is taking over, by key. Thread safe."""

    def __init__(
        self,
        agent: Callable[[], Agent],
        settings: Settings,
        schedule: Callable[[str], None] = lambda _key: None,
    ) -> None:
        """`schedule` is told the key of each turn that begins or goes on here; returns at once."""
        self._agent = agent
        self._settings = settings
        self._schedule = schedule
        self._owners: dict[str, Owner] = {}
        self._lock = threading.Lock()
        self._stops_at: float | None = None
        """The monotonic instant at which this container must have stopped, once it drains."""

    @property
    def agent(self) -> Agent:
        """The agent, imported at first use: a plain replay never pays for it.

        Raises NotConfigured when it cannot be loaded, or a secret it needs is missing.
        """
        try:
            return _require_agent(self._agent())
        except NotConfigured:
            raise
        except (Exception, SystemExit):  # noqa: BLE001 - a typo in somebody's agent is no bug of ours
            logs.error("the agent cannot be loaded")
            raise NotConfigured("the agent of this deployment cannot be loaded") from None

    def writer(self, key: str) -> Writer | None:
        """The live end of a turn that this process owns, to read from; None otherwise."""
        owner = self._owners.get(key)
        return None if owner is None or owner.over else owner.writer

    def require_room(self) -> None:
        """Raise AtCapacity when this container owns as many turns as it may, Draining when it is
        about to end.

        Turns whose clients left do not hold a stream, but they do hold threads.
        """
        if self._stops_at is not None:
            raise Draining("this container is about to end; another one serves you")
        if len(self._owners) >= 2 * self._settings.stream_cap:
            raise AtCapacity("this container runs as many turns as it may")

    def require_agent(self) -> None:
        """Raise NotConfigured when there is no agent: nobody takes a turn that they cannot run."""
        _ = self.agent

    def own(self, taken: Taken) -> Writer:
        """Run a turn whose lease was just taken. Raises AtCapacity when no thread can be had,
        Draining when the container is about to end; then the lease is given back (L4).
        """
        owner = Owner(taken.turn, lambda: self.agent, self._settings)
        writer = owner.begin(taken)
        started = self._start(taken.turn.key, owner, lambda: owner.run(taken), has_lease=True)
        self._schedule(taken.turn.key)
        if not started:
            owner.release()
            taken.lease.lose("it cannot be run here")
            self.require_room()
            raise AtCapacity("this container runs as many turns as it may")
        return writer

    def take_over(self, turn: Record) -> None:
        """Begin to take over a turn that was read as lapsed, unless this process already does.

        Returns at once: what comes of it shows in the journal, and in `writer`.
        """
        if len(self._owners) < 2 * self._settings.stream_cap:
            owner = Owner(turn, lambda: self.agent, self._settings)
            self._start(turn.key, owner, lambda: owner.take_over(turn))

    def drain(self, *, within_seconds: float) -> None:
        """Release every turn that is owned here, and take no other: the container is about to end.

        Returns when that is done, or after `within_seconds`. What is not released by then lapses.
        """
        with self._lock:
            self._stops_at = until = time.monotonic() + within_seconds
        releases: dict[Owner, threading.Thread] = {}
        while time.monotonic() < until:
            with self._lock:
                there = {owner for owner in self._owners.values() if not owner.gone}
            # An owner may be through with its agent, and forgotten, before its release is.
            if not there and not any(thread.is_alive() for thread in releases.values()):
                return
            for owner in there - releases.keys():
                if owner.writer is not None:  # else it is about to take the turn over
                    thread = threading.Thread(target=owner.release, name="release", daemon=True)
                    releases[owner] = thread
                    thread.start()
            time.sleep(DRAIN_POLL_SECONDS)
        logs.warning("some turns were not released in time")

    def must_leave(self, key: str) -> bool:
        """Whether a stream of the turn must end, since this container does: once the turn is not
        owned here any more, or the time is over.
        """
        until = self._stops_at
        return until is not None and (self.writer(key) is None or time.monotonic() >= until)

    def finish(self, turn: Record, *, until: float) -> None:
        """Take over a turn that was read as lapsed, and wait for this process's owner to end.

        At `until` (monotonic) the lease is released (L4): the turn goes on elsewhere. Raises
        AtCapacity, Draining, NotConfigured.
        """
        self.require_room()
        self.require_agent()
        self.take_over(turn)
        owner = self._owners.get(turn.key)
        if owner is None or owner.ended.wait(max(0.0, until - time.monotonic())):
            return
        if owner.writer is not None:
            owner.release()

    def _start(
        self, key: str, owner: Owner, work: Callable[[], None], *, has_lease: bool = False
    ) -> bool:
        """Do `work` on a thread of its own; False when that cannot be, or need not.

        With `has_lease` whoever is there is through with the turn, or about to find that it is not
        its: parked, or taking over what was taken already.
        """

        def run() -> None:
            try:
                with logs.context(**owner.fields):
                    work()
            except BaseException:  # noqa: BLE001 - the thread's edge: the lease lapses
                logs.error("an owner broke down", **owner.fields)
            finally:
                self._forget(key, owner)
                owner.ended.set()

        with self._lock:
            there = self._owners.get(key)
            busy = there is not None and not there.gone and not has_lease
            if self._stops_at is not None or busy:
                return False
            self._owners[key] = owner
        try:
            threading.Thread(target=run, name="owner", daemon=True).start()
        except RuntimeError:
            logs.error("no thread could be had", **owner.fields)
            self._forget(key, owner)
            owner.ended.set()
            return False
        return True

    def _forget(self, key: str, owner: Owner) -> None:
        with self._lock:
            if self._owners.get(key) is owner:
                del self._owners[key]


def _require_agent(made: Any) -> Agent:
    """What `agent()` of the deployment returned. Raises TypeError if that is something else."""
    if not isinstance(made, Agent):
        raise TypeError(f"agent() returns an Agent, not {made!r}")
    return made
