"""Errors by the reaction they call for.

- `Rejected`: the caller must change something. - `Unavailable`: try again later.
- `LeaseLost`: another container owns the turn; this one stops.
- `InvariantBroken`: a bug.

Messages are written for the caller: they never carry exception text, a prompt or a secret.
The codes of the first two are the closed list in docs/PROTOCOL.md, "Answers".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class Answered(Exception):
    """An error that is answered as JSON with its own status and code."""

    status: ClassVar[int]
    code: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.headers = dict(headers or {})
        self.more: Mapping[str, str] = {}
        """Fields of the answer's error beside the usual three."""
        self.correlation_id = correlation_id
        """Set when the log lines are found by another id than the request's."""


class Rejected(Answered):
    """The request cannot succeed as it stands."""


class BadTurnId(Rejected):
    """`X-Stream-Turn-Id` is missing or not 20-64 of `A-Za-z0-9_-`."""

    status, code = 400, "bad_turn_id"


class BadCursor(Rejected):
    """`Last-Event-ID` is no decimal number, or above every id the turn may have shown."""

    status, code = 400, "bad_cursor"


class BadBody(Rejected):
    """The body is not the JSON this function takes."""

    status, code = 400, "bad_body"


class BadQuery(Rejected):
    """The query of the URL is not what this function takes."""

    status, code = 400, "bad_query"


class AppCheckFailed(Rejected):
    """The App Check token is missing, not genuine, expired or already used."""

    status, code = 401, "app_check_failed"


class SignInRequired(Rejected):
    """The call needs a signed-in user, and carries no ID token."""

    status, code = 401, "sign_in_required"


class SignInFailed(Rejected):
    """The ID token is not genuine, expired, revoked, or of another project."""

    status, code = 401, "sign_in_failed"


class UnknownTurn(Rejected):
    """No such turn, or not the caller's."""

    status, code = 404, "unknown_turn"


class UnknownSession(Rejected):
    """No such session, or not the caller's."""

    status, code = 404, "unknown_session"


class UnknownStep(Rejected):
    """The turn has no such step."""

    status, code = 404, "unknown_step"


class UnknownPath(Rejected):
    """The function has no such path."""

    status, code = 404, "unknown_path"


class MethodNotAllowed(Rejected):
    """The function does not take this method; `Allow` says which."""

    status, code = 405, "method_not_allowed"


class TurnConflict(Rejected):
    """The turn id was used for another request."""

    status, code = 409, "turn_conflict"


class SessionBusy(Rejected):
    """Another turn of the session runs or waits; `turnId` names it, so that a client can attach."""

    status, code = 409, "session_busy"

    def __init__(self, turn_id: str) -> None:
        super().__init__("another turn of this session runs or waits")
        self.more = {"turnId": turn_id}


class TooEarly(Rejected):
    """A task came before it is due: the Tasks emulator sends each at once. It is sent again."""

    status, code = 425, "too_early"


class Gone(Rejected):
    """The turn, or the part of it after the cursor, is past its retention."""

    status, code = 410, "gone"


class BodyTooLarge(Rejected):
    """The body or the prompt is over its bound."""

    status, code = 413, "body_too_large"


class UnsupportedMediaType(Rejected):
    """The body is not declared as `application/json`."""

    status, code = 415, "unsupported_media_type"


class LimitReached(Rejected):
    """The owner has as many turns as they may; the same start may succeed after a while."""

    status = 429

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after_seconds)})


class TooManyTurns(LimitReached):
    """The owner started as many turns within a minute as they may."""

    code = "too_many_turns"

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__("you started too many turns within a minute", retry_after_seconds)


class TooManyRunningTurns(LimitReached):
    """The owner has as many running turns as they may."""

    code = "too_many_running_turns"

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__("too many of your turns are running", retry_after_seconds)


class AgentFailed(Rejected):
    """The agent failed before its first event. The turn has ended; resuming it says the same."""

    status, code = 502, "agent_failed"


class Unavailable(Answered):
    """Nothing is wrong with the request; the same one may succeed later."""

    status, code = 503, "unavailable"
    retry_after_seconds: ClassVar[int | None] = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)
        if self.retry_after_seconds is not None:
            self.headers["Retry-After"] = str(self.retry_after_seconds)


class AtCapacity(Unavailable):
    """This container already holds as many streams as it may."""

    code = "at_capacity"


class Draining(Unavailable):
    """This container is about to end; another one takes the same request."""

    code = "draining"
    retry_after_seconds = 1


class StorageUnavailable(Unavailable):
    """Firestore did not answer in time."""

    code = "storage_unavailable"


class IdentityUnavailable(Unavailable):
    """Google's keys, or what uses App Check tokens up, did not answer in time."""

    code = "identity_unavailable"


class NotConfigured(Unavailable):
    """The deployment lacks something that every call needs; retrying does not help."""

    code = "not_configured"
    retry_after_seconds = None


class TurnBusy(Unavailable):
    """Another step of the turn is running right now."""

    code = "turn_busy"


class QueueUnavailable(Unavailable):
    """The queue of tasks takes no task. `cause` is the name of its error."""

    code = "queue_unavailable"

    def __init__(self, cause: str) -> None:
        super().__init__("the queue of tasks did not take the task")
        self.cause = cause


class NewerSchema(Unavailable):
    """The turn was written by a newer version of this package."""

    code = "newer_schema"
    retry_after_seconds = 10


class LeaseLost(BaseException):
    """This container no longer owns the turn: it writes nothing more and starts no step."""


class InvariantBroken(RuntimeError):
    """A statement this package relies on is false; the message names it (J1, L2, …)."""


class TurnFailed(Exception):
    """The turn cannot go on; ends it with an `error` event that carries `code` and `message`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
