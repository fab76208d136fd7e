"""Starting a turn: what its owner's other turns have to say about it, and its creation."""

from __future__ import annotations

import time
from dataclasses import dataclass

from functions import firestore
from functions.errors import Rejected, StorageUnavailable
from functions.settings import Settings
from functions.turns import record, sessions, takeover
from functions.turns.record import Request
from functions.turns.takeover import Taken

CREATE_SECONDS = 10.0
"""How long a start races with others of the same session; each round lets one of them through."""


def create(
    owner: str, turn_id: str, request: Request, *, agent_version: str, settings: Settings
) -> Taken | None:
    """Create the turn and take its first lease; None when it exists already.

    A turn of a session claims it in the same commit (H1). Raises SessionBusy while another turn
    has the session, StorageUnavailable, NewerSchema. No refusal holds for a turn that exists: who
    starts it again attaches to it.
    """
    start = _Start(owner, turn_id, request, agent_version, settings)
    key = record.turn_key(owner, turn_id)
    until = time.monotonic() + CREATE_SECONDS
    pauses = firestore.backoff()
    while time.monotonic() < until:
        try:
            taken = start.attempt()
        except Rejected:
            if record.load(key) is None:
                raise
            return None
        if taken is not None or record.load(key) is not None:
            return taken
        time.sleep(next(pauses))
    raise StorageUnavailable("too many turns were started at once")


@dataclass(frozen=True, slots=True)
class _Start:
    owner: str
    turn_id: str
    request: Request
    agent_version: str
    settings: Settings

    def attempt(self) -> Taken | None:
        """One round; None when the turn exists, or something changed since it was read."""
        session_id = self.request.session_id
        if session_id is None:
            return takeover.create(
                self.owner,
                self.turn_id,
                self.request,
                agent_version=self.agent_version,
                settings=self.settings,
            )
        session = sessions.load(self.owner, session_id)
        sessions.require_free(session)
        membership = sessions.join(
            session,
            self.owner,
            session_id,
            self.turn_id,
            session_hours=self.settings.session_hours,
        )
        return takeover.create(
            self.owner,
            self.turn_id,
            self.request,
            agent_version=self.agent_version,
            settings=self.settings,
            membership=membership,
            also=lambda batch: membership.claim(session, self.owner, session_id, batch),
        )
