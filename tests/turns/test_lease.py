"""The lease's decisions: server times alone, the boundary instant, sticky loss."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.errors import LeaseLost
from functions.turns.lease import MARGIN_SECONDS, Holder, Lease

WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "lapsed"),
    [(0, False), (9, False), (9 + MARGIN_SECONDS, False), (9 + MARGIN_SECONDS + 0.001, True)],
)
def test_a_lease_lapses_after_lease_and_margin(age: float, *, lapsed: bool) -> None:
    """At the boundary instant itself it is not lapsed yet."""
    read = WRITTEN + timedelta(seconds=age)
    assert Holder("n", 1, 9).lapsed(read, WRITTEN) is lapsed


def test_the_local_wall_clock_takes_no_part() -> None:
    """A container 90 s off cannot steal a lease: only the server's two times are compared."""
    for year in (1990, 2090):
        written = WRITTEN.replace(year=year)
        assert not Holder("n", 1, 9).lapsed(written + timedelta(seconds=5), written)
        assert Holder("n", 1, 9).lapsed(written + timedelta(seconds=10), written)


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.floats(0, 5), st.floats(1, 60))
def test_the_owner_stops_before_anybody_else_may_begin(flight: float, seconds: float) -> None:
    """L2 before L1: the deadline counts from sending, the lapse from the later applying."""
    clock = Clock()
    lease = Lease(Holder("n", 1, seconds), sent_at=clock.now, clock=clock)
    stops_at = clock.now + lease.remaining()
    applied_at = clock.now + flight
    assert stops_at < applied_at + seconds + MARGIN_SECONDS


def test_a_confirmed_renewal_counts_from_its_sending() -> None:
    """Not from its answer: the server may have applied it at once."""
    clock = Clock()
    lease = Lease(Holder("n", 1, 9), sent_at=100, clock=clock)
    clock.now = 106
    lease.confirm(sent_at=103)
    assert lease.remaining() == 103 + 9 - 106


def test_an_older_confirmation_does_not_shorten_the_lease() -> None:
    """Answers may come out of order."""
    lease = Lease(Holder("n", 1, 9), sent_at=100, clock=lambda: 100.0)
    lease.confirm(sent_at=105)
    lease.confirm(sent_at=102)
    assert lease.remaining() == 14


def test_a_lost_lease_stays_lost() -> None:
    """L3: neither a late confirmation nor time brings it back; it is told once."""
    clock = Clock()
    told: list[int] = []
    lease = Lease(Holder("n", 1, 9), sent_at=100, clock=clock)
    lease.on_lost = lambda: told.append(1)
    clock.now = 109
    assert lease.lost
    lease.confirm(sent_at=108)
    assert lease.lost
    with pytest.raises(LeaseLost):
        lease.remaining()
    assert told == [1]


def test_a_lost_lease_cannot_be_swallowed() -> None:
    """An agent's `except Exception` must not go on after it."""
    assert not issubclass(LeaseLost, Exception)


@given(st.integers(1, 10**6), st.floats(1, 60), st.integers(0, 10**6))
def test_a_holder_comes_back_as_it_was_stored(epoch: int, seconds: float, beat: int) -> None:
    """Its fields are its whole meaning."""
    holder = Holder("n", epoch, seconds, beat)
    assert Holder.from_fields(holder.to_fields()) == holder
    assert holder.next(seconds).epoch == epoch + 1
    assert holder.next(seconds).nonce != holder.nonce
