"""Firestore: the one client, the names of everything stored, and what an answer means.

Names live here alone, but for an agent's own; rules, indexes and code are tested against them.
"""

from __future__ import annotations

import enum
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from functions import logs
from functions.errors import StorageUnavailable
from functions.settings import settings

if TYPE_CHECKING:  # imported at first use: half a second that a cold start does not pay
    from google.cloud.firestore import (
        Client,
        CollectionReference,
        DocumentReference,
        DocumentSnapshot,
        Query,
        WriteBatch,
    )

TURNS = "agent_turns"
EVENTS = "agent_turn_events"
STEPS = "agent_turn_steps"
SESSIONS = "agent_sessions"
OWNERS = "agent_owners"
APP_CHECK_TOKENS = "agent_app_check_tokens"
EXPIRE_AT = "expireAt"
"""The field of every TTL policy (https://firebase.google.com/docs/firestore/ttl)."""

OWNER = "owner"
UPDATED_AT = "updatedAt"
"""Of sessions: a query orders by it."""

LAST = "last"
"""The one field of a journal chunk that a query filters and orders by."""

READ_SECONDS = 5.0
"""A read is tried again within so long, each try no longer than `TRY_SECONDS`."""
TRY_SECONDS = 2.0

_NO_ANSWER = "the storage of turns did not answer in time"

T = TypeVar("T")

_client: Client | None = None
_client_lock = threading.Lock()


def client() -> Client:
    """This process's client, made at first use: after the server forked, once for all threads.

    gRPC must not exist before the fork, and ten parallel first requests must not make ten.
    """
    global _client  # noqa: PLW0603 - one per process is the point
    if _client is None:
        with _client_lock:
            if _client is None:
                # Its notes on stderr are no structured log lines.
                os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
                from google.cloud.firestore import Client

                _client = Client(project=settings().project)
    return _client


class Kind(enum.Enum):
    """What is known after a commit was sent."""

    APPLIED = "applied"
    EXISTS = "exists"
    """A document to create is there already: another's, or our own from a lost answer."""
    STALE = "stale"
    """A precondition failed: the document changed, or is gone."""
    RETRY = "retry"
    """Not applied, for a reason that passes; the same bytes may be sent again."""
    REFUSED = "refused"
    """Not applied and never will be: the same bytes fail again."""
    UNCLEAR = "unclear"
    """Applied or not, or not yet: read back."""


_KINDS = {
    "AlreadyExists": Kind.EXISTS,
    "FailedPrecondition": Kind.STALE,
    "NotFound": Kind.STALE,
    "Aborted": Kind.RETRY,
    "ResourceExhausted": Kind.RETRY,
    "TooManyRequests": Kind.RETRY,
    "InvalidArgument": Kind.REFUSED,
    "OutOfRange": Kind.REFUSED,
    "MethodNotImplemented": Kind.REFUSED,
    "PermissionDenied": Kind.REFUSED,
    "Forbidden": Kind.REFUSED,
    "Unauthenticated": Kind.REFUSED,
    "Unauthorized": Kind.REFUSED,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A commit's answer. `updated_at` is the server's time of the commit, when applied."""

    kind: Kind
    updated_at: datetime | None = None
    cause: str = ""


def classify(error: Exception) -> Kind:
    """What a failed commit's error says. Unknown errors are unclear: never guessed."""
    return _KINDS.get(type(error).__name__, Kind.UNCLEAR)


def is_its_error(error: BaseException) -> bool:
    """Whether Firestore said this, and not the code that used it."""
    from google.api_core.exceptions import GoogleAPIError

    return isinstance(error, GoogleAPIError)


def commit(writes: Callable[[WriteBatch], None], *, timeout_seconds: float) -> Answer:
    """Send one atomic batch once and say what is known of it. Never retries, never raises for
    an answer of Firestore's: who calls knows how to read back.
    """
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    try:
        batch = client().batch()
        writes(batch)
        results = batch.commit(retry=None, timeout=timeout_seconds)
    except (GoogleAPIError, GoogleAuthError) as error:
        return Answer(classify(error), cause=type(error).__name__)
    return Answer(Kind.APPLIED, updated_at=results[0].update_time)


def settle(
    writes: Callable[[WriteBatch], None],
    read_back: Callable[[float], datetime | None],
    *,
    within_seconds: float,
) -> datetime | None:
    """Commit `writes` until it is clear what became of them: the server's time of the commit, or
    None when somebody else's stand in the way.

    `writes` must hold a nonce and fail once they are applied, so that sending them again is safe.
    `read_back(within_seconds)` says when our own were written, None when what is there is not ours.

    Raises StorageUnavailable when it stays unclear, or when Firestore will never take them.
    """
    deadline = time.monotonic() + within_seconds
    pauses = backoff()
    while time.monotonic() < deadline:
        answer = commit(writes, timeout_seconds=min(TRY_SECONDS, within_seconds))
        if answer.updated_at is not None:
            return answer.updated_at
        if answer.kind is Kind.REFUSED:
            logs.error("a commit was refused", cause=answer.cause)
            break
        if answer.kind is not Kind.RETRY:
            ours = read_back(max(0.1, deadline - time.monotonic()))
            if ours is not None or answer.kind in {Kind.EXISTS, Kind.STALE}:
                return ours
        time.sleep(next(pauses))
    raise StorageUnavailable(_NO_ANSWER)


def converge(step: Callable[[], Callable[[WriteBatch], None] | None], *, until: float) -> bool:
    """Commit what `step` returns, again and again, until it returns None: then nothing is left.

    `step` reads what is there and says what is still to be written, so an answer need not be
    understood. False when the time `until` (monotonic) is over before that. Raises
    StorageUnavailable when Firestore will never take the writes, and what `step` raises.
    """
    pauses = backoff()
    while time.monotonic() < until:
        writes = step()
        if writes is None:
            return True
        answer = commit(writes, timeout_seconds=READ_SECONDS)
        if answer.kind is Kind.REFUSED:
            logs.error("a commit was refused", cause=answer.cause)
            raise StorageUnavailable(_NO_ANSWER)
        if answer.kind is not Kind.APPLIED:
            time.sleep(next(pauses))
    return False


def backoff(first: float = 0.02, most: float = 0.5) -> Iterator[float]:
    """Pauses in seconds between tries: doubling up to `most`, with jitter."""
    pause = first
    while True:
        yield pause * random.uniform(0.5, 1)  # noqa: S311 - jitter, not a secret
        pause = min(2 * pause, most)


def documents(
    query: Query | CollectionReference, timeout_seconds: float
) -> Iterator[DocumentSnapshot[Any]]:
    """The documents of a query, asked for once.

    Not `retry=None`: the SDK asks that for its predicate when an error comes in mid-stream, and
    the real error is lost in an AttributeError.
    """
    from google.api_core.retry import Retry

    never = Retry(predicate=lambda _error: False)
    yield from query.stream(retry=never, timeout=timeout_seconds)


def get_all(
    references: Iterable[DocumentReference],
    *,
    field_paths: Iterable[str] | None = None,
    within_seconds: float = READ_SECONDS,
) -> dict[str, DocumentSnapshot[Any]]:
    """Documents by their ids, in one round trip; a missing one's snapshot does not `exist`.

    Raises StorageUnavailable.
    """
    from google.api_core.retry import Retry

    wanted = list(references)
    never = Retry(predicate=lambda _error: False)

    def fetch(timeout: float) -> dict[str, DocumentSnapshot[Any]]:
        found = client().get_all(wanted, field_paths=field_paths, retry=never, timeout=timeout)
        return {snapshot.id: snapshot for snapshot in found}

    return read(fetch, within_seconds=within_seconds)


def read(call: Callable[[float], T], *, within_seconds: float = READ_SECONDS) -> T:
    """The result of `call(timeout)`, tried again while the error is one that passes.

    Returns or raises StorageUnavailable within about `within_seconds`, the last try included.
    """
    from google.api_core import exceptions
    from google.api_core.retry import Retry, if_exception_type
    from google.auth.exceptions import GoogleAuthError

    retry = Retry(
        predicate=if_exception_type(
            exceptions.ServerError,
            exceptions.Aborted,
            exceptions.Cancelled,
            exceptions.TooManyRequests,
        ),
        initial=0.02,
        maximum=0.5,
        timeout=within_seconds,
    )
    deadline = time.monotonic() + within_seconds

    def attempt() -> T:
        return call(max(0.05, min(TRY_SECONDS, deadline - time.monotonic())))

    try:
        return retry(attempt)()
    except (exceptions.GoogleAPIError, GoogleAuthError) as error:
        if isinstance(error, exceptions.ClientError):  # does not pass: somebody has to see to it
            logs.error("a read was refused", cause=type(error).__name__)
        raise StorageUnavailable(_NO_ANSWER) from error
