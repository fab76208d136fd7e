"""What a container's requests share: its settings, its slots and the turns it owns."""

from __future__ import annotations

import time
from collections.abc import Callable

from functions import logs
from functions.endpoints.shutdown import DRAIN_SECONDS, Shutdown
from functions.endpoints.slots import Slots
from functions.identity import app_check
from functions.settings import Settings, settings
from functions.turns.owners import Owners
from functions.turns.program import Agent
from functions.turns.queue import Queue


class Service:
    """Composed once by `main`. Making one does no work: no client, no thread, no agent."""

    def __init__(self, agent: Callable[[], Agent], checked: Settings | None = None) -> None:
        app_check.require_sdk()
        logs.take_in_strays()
        self.settings = checked or settings()
        self.slots = Slots(self.settings.stream_cap)
        self.queue = Queue(self.settings)
        self.owners = Owners(agent, self.settings, schedule=self.queue.look_later)
        self._shutdown = Shutdown(self._drain)

    def watch(self) -> None:
        """Be ready for the container's end; called by every request for a stream."""
        self._shutdown.watch()

    def _drain(self) -> None:
        """No new streams; turns released; open streams end by themselves after that. A turn that
        was just begun has its look scheduled: its client may never come back.
        """
        logs.info("draining")
        until = time.monotonic() + DRAIN_SECONDS
        self.slots.close()
        self.owners.drain(within_seconds=DRAIN_SECONDS)
        self.queue.settle(within_seconds=until - time.monotonic())
        logs.info("drained")
