"""Starting a turn: what its owner's other turns have to say about it, and its creation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from functions import firestore
from functions.errors import Rejected, StorageUnavailable
from functions.settings import Settings
from functions.turns import quota, record, sessions, takeover
from functions.turns.membership import Membership, join
from functions.turns.record import Request
from functions.turns.takeover import Taken

if TYPE_CHECKING:
    from google.cloud.firestore import WriteBatch

CREATE_SECONDS = 10.0
"""How long a start races with others of its owner; each round lets one of them through."""


def create(
    owner: str, turn_id: str, request: Request, *, agent_version: str, settings: Settings
) -> Taken | None:
    """Create the turn and take its first lease; None when it exists already.

    In the same commit a user's turn is counted (O1), and claims its session (H1). Raises
    TooManyTurns, TooManyRunningTurns, SessionBusy, StorageUnavailable, NewerSchema. No refusal
    holds for a turn that exists: who starts it again attaches to it.
    """
    start = _Start(owner, turn_id, request, agent_version, settings)
    if not record.is_user(owner):
        return start.commit()
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
    raise StorageUnavailable("too many of your turns were started at once")


@dataclass(frozen=True, slots=True)
class _Start:
    owner: str
    turn_id: str
    request: Request
    agent_version: str
    settings: Settings

    def attempt(self) -> Taken | None:
        """One round; None when the turn exists, or something changed since it was read."""
        key = record.turn_key(self.owner, self.turn_id)
        documents = [quota.reference(self.owner)]
        session_id = self.request.session_id
        if session_id is not None:
            documents.append(sessions.reference(sessions.session_key(self.owner, session_id)))
        found = firestore.get_all(documents)
        count = quota.count(self.owner, key, found[documents[0].id], self.settings)
        if session_id is None:
            return self.commit(count)
        session = sessions.from_snapshot(found[documents[1].id])
        sessions.require_free(session)
        membership = join(
            session,
            self.owner,
            session_id,
            self.turn_id,
            session_hours=self.settings.session_hours,
        )

        def also(batch: WriteBatch) -> None:
            count(batch)
            membership.claim(session, self.owner, session_id, batch)

        return self.commit(also, membership)

    def commit(
        self,
        also: Callable[[WriteBatch], None] = lambda _batch: None,
        membership: Membership | None = None,
    ) -> Taken | None:
        """Create the turn together with the writes of `also`."""
        return takeover.create(
            self.owner,
            self.turn_id,
            self.request,
            agent_version=self.agent_version,
            settings=self.settings,
            membership=membership,
            also=also,
        )
