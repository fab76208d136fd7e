"""The lease: who may write a turn's journal, judged by server times and one's own monotonic clock.

- L1: a lease may be taken only when the server's clock says that nobody wrote the turn's document
  for longer than the lease plus a margin. No wall clock of a container takes part.
- L2: an owner stops at its own deadline: one lease after it *sent* the last renewal that was
  confirmed. That instant is before the one at which L1 lets anybody else in.
- L3: losing the lease is sticky. An owner that lost it never writes again in that epoch, not even
  when nobody else took it.
- L4: an owner that is told to stop gives the lease back: its last append stores it with 0 seconds,
  so that L1 lets others in after the margin. It stops renewing before it sends that, and begins
  nothing from then on.

The lease alone protects nothing; the journal's next position is the fence (J2). The lease only
keeps two owners from working at the same time.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from functions import firestore, logs
from functions.errors import LeaseLost, StorageUnavailable

if TYPE_CHECKING:
    from google.cloud.firestore import DocumentReference, WriteBatch

MARGIN_SECONDS = 0.5
"""How much longer than the lease a taker waits: covers clocks that run at different rates."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The lease as stored: `nonce` names one owner in one epoch and nobody else ever."""

    nonce: str
    epoch: int
    seconds: float
    """Stored, so that a deploy with another LEASE_SECONDS cannot steal a live lease."""
    beat: int = 0
    """Counts renewals: Firestore leaves a document's time alone when a write changes nothing."""

    @classmethod
    def first(cls, seconds: float) -> Holder:
        """The lease of a new turn."""
        return cls(secrets.token_hex(8), 1, seconds)

    def next(self, seconds: float) -> Holder:
        """The lease of whoever takes over from this one."""
        return Holder(secrets.token_hex(8), self.epoch + 1, seconds)

    def released(self) -> Holder:
        """The same lease, given back (L4)."""
        return replace(self, seconds=0.0)

    def lapsed(self, read_at: datetime, updated_at: datetime) -> bool:
        """Whether it may be taken (L1). At the boundary instant itself it may not."""
        return self.lapses_in(read_at, updated_at) < 0

    def lapses_in(self, read_at: datetime, updated_at: datetime) -> float:
        """Seconds after `read_at` at which it lapses; both are server times."""
        return self.seconds + MARGIN_SECONDS - (read_at - updated_at).total_seconds()

    def to_fields(self) -> dict[str, Any]:
        """As stored in the turn's `lease`."""
        return {
            "owner": self.nonce,
            "epoch": self.epoch,
            "seconds": self.seconds,
            "beat": self.beat,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Holder:
        """From the turn's `lease`."""
        return cls(fields["owner"], fields["epoch"], fields["seconds"], fields["beat"])


class Lease:
    """An owner's own view of the lease it holds. Thread safe."""

    def __init__(
        self, holder: Holder, *, sent_at: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`sent_at`: the monotonic instant at which the commit that took the lease was sent."""
        self.holder = holder
        self._clock = clock
        self._deadline = sent_at + holder.seconds
        self._lost: str | None = None
        self._lock = threading.Lock()
        self.on_lost: Callable[[], None] = lambda: None

    def confirm(self, *, sent_at: float) -> None:
        """A renewal sent at `sent_at` is known to be applied. Does not revive a lost lease."""
        with self._lock:
            self._deadline = max(self._deadline, sent_at + self.holder.seconds)

    def lose(self, why: str) -> None:
        """Give the lease up for good (L3)."""
        with self._lock:
            first = self._lost is None
            self._lost = self._lost or why
        if first:
            logs.info("lease lost", why=why)
            self.on_lost()

    @property
    def lost(self) -> bool:
        """Whether the owner must stop: told so, or past its own deadline (L2)."""
        if self._lost is None and self._clock() >= self._deadline:
            self.lose("deadline passed without a confirmed renewal")
        return self._lost is not None

    def remaining(self) -> float:
        """Seconds until the owner must have stopped. Raises LeaseLost when that is over."""
        if self.lost:
            raise LeaseLost(self._lost)
        return self._deadline - self._clock()

    @contextmanager
    def lost_when_broken(self, why: str) -> Iterator[None]:
        """The edge of a background thread: if it breaks down, the turn must not hang owned."""
        try:
            yield
        except BaseException:  # noqa: BLE001 - the thread's edge
            logs.error(why)
            self.lose(why)


class Renewal:
    """Renews a lease every third of it, on its own thread, so that a slow append, a slow reader
    or a tool that blocks cannot keep it from renewing.

    A turn past its retention is not renewed: no agent can hold it for ever.

    A renewal is an update on the precondition that the turn's document is unchanged since this
    owner's last write to it; a failed precondition or an unclear answer means: read again.
    """

    def __init__(
        self, turn: DocumentReference, lease: Lease, updated_at: datetime, expire_at: datetime
    ) -> None:
        self._turn = turn
        self._lease = lease
        self._expire_at = expire_at
        self._known = updated_at
        self._beat = 0
        self._stop = threading.Event()
        self._fields = logs.fields()
        self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)

    def start(self) -> None:
        """Begin renewing."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more; does not wait for a renewal that is under way."""
        self._stop.set()

    def _run(self) -> None:
        period = self._lease.holder.seconds / 3
        pause = period
        with (
            logs.context(**self._fields),
            self._lease.lost_when_broken("the renewal broke down"),
            suppress(LeaseLost),
        ):
            while not self._stop.wait(min(pause, self._lease.remaining())):
                # A renewal that failed is tried again soon, well before the deadline.
                pause = period if self._renew(period) else period / 5

    def _renew(self, period: float) -> bool:
        """Send one renewal; whether it is known to be applied. Raises LeaseLost."""
        if self._known >= self._expire_at:
            self._lease.lose("the turn is past its retention")
        sent_at = time.monotonic()
        self._beat += 1
        holder = replace(self._lease.holder, beat=self._beat)
        answer = firestore.commit(
            lambda batch: self._write(batch, holder),
            timeout_seconds=min(period, self._lease.remaining()),
        )
        if answer.kind is firestore.Kind.APPLIED and answer.updated_at is not None:
            self._known = answer.updated_at
            self._lease.confirm(sent_at=sent_at)
            return True
        return not self._stop.is_set() and self._read_back(sent_at)

    def _write(self, batch: WriteBatch, holder: Holder) -> None:
        option = firestore.client().write_option(last_update_time=self._known)
        batch.update(self._turn, {"lease": holder.to_fields()}, option=option)

    def _read_back(self, sent_at: float) -> bool:
        """Find out what became of a renewal; whether it was applied. Raises LeaseLost."""
        try:
            snapshot = firestore.read(
                lambda timeout: self._turn.get(retry=None, timeout=timeout),
                within_seconds=self._lease.remaining(),
            )
        except StorageUnavailable:
            return False
        fields = snapshot.to_dict()
        if fields is None:
            self._lease.lose("the turn was deleted")
            return False
        stored = Holder.from_fields(fields["lease"])
        if (stored.nonce, stored.epoch) != (self._lease.holder.nonce, self._lease.holder.epoch):
            self._lease.lose(f"epoch {stored.epoch} has the turn")
            return False
        self._known = snapshot.update_time
        if stored.beat != self._beat:
            return False
        self._lease.confirm(sent_at=sent_at)
        return True
