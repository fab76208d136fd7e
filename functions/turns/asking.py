"""One model step that is not recorded yet: asked, asked again after what passes, then recorded.

An attempt that fails has its text withdrawn by a `rewind` of the same epoch. So what is recorded,
and what a client is left with, is the text of the attempt that was answered.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

from functions import logs
from functions.errors import TurnFailed
from functions.turns import steps
from functions.turns.steps import Step
from functions.turns.writer import Mark, Writer

MOST_ATTEMPTS = 6
"""Of one owner. Their pauses add up to about half a minute."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""A model that wants to be left alone for longer is not waited for."""


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

ModelFailure = Literal[
    "model_refused", "model_auth", "model_unavailable", "context_overflow", "bad_model_response"
]


class ModelUnavailable(Exception):
    """Raised by a model call that may succeed later: a rate limit, an overload, a time-out, a
    stream that broke off. The step withdraws its text and asks again, with back-off.

    `why` is told to nobody: it may be a provider's words. The log has the type of its cause.
    """

    def __init__(self, why: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_seconds = retry_after_seconds
        """How long the model wants to be left alone; None: it does not say."""


class ModelFailed(TurnFailed):
    """Raised by a model call that no second try can save: withdraws its text and ends the turn.

    The client is told both. Making one raises ValueError for a code that is none of these, and
    TypeError for a message that is no `str`: an exception's text is not for clients.
    """

    def __init__(
        self,
        code: ModelFailure,
        message: str,
    ) -> None:
        if code not in get_args(ModelFailure):
            raise ValueError(f"a model does not fail with {code!r}")
        if not isinstance(message, str):
            raise TypeError(f"a message is a str, not {type(message).__name__}")
        super().__init__(code, message)


class StepFailed(Exception):
    """A step raised. Recorded: a re-run of the agent meets the same failure, without calling."""

    def __init__(self, position: int, name: str, cause: str) -> None:
        super().__init__(f"step {position} ({name}) failed: {cause}")
        self.position = position
        self.name = name
        self.cause = cause


class Asking:
    """A model step as its agent sees it: `answered`, or open. Made by `Turn.ask`."""

    def __init__(
        self,
        step: Step,
        writer: Writer,
        emit: Callable[[str], None],
        record: Callable[[Step], None],
    ) -> None:
        self._step = step
        self._writer = writer
        self._emit = emit
        self._record = record
        self._mark: Mark | None = None if step.finished else writer.mark()
        self._attempts = 0

    @property
    def answered(self) -> bool:
        """Whether the step has its outcome."""
        return self._step.finished

    @property
    def full(self) -> bool:
        """Whether `emit` would wait for the journal now."""
        return self._writer.full

    def emit(self, text: str) -> None:
        """Stream a piece of the response's text, as `Turn.token` does."""
        self._emit(text)

    def answer(self, response: Any) -> None:
        """Record the response, a JSON value, in one commit with the last of its text.

        Raises TurnFailed when JSON cannot carry it, or it is over 512 KiB; LeaseLost.
        """
        result = steps.to_json(self._step.position, response)
        self._finish(replace(self._step, status=steps.OK, result=result))

    def failed(self, error: Exception) -> float:
        """Take in that an attempt raised `error`; the seconds to wait before the next one.

        Of what passes the text is withdrawn. Raises TurnFailed when no further try is due. Any
        other error is an outcome: it is recorded, and 0 is returned.
        """
        if isinstance(error, TurnFailed):
            if isinstance(error, ModelFailed):
                self._log(error)
            self._withdraw()
            raise error
        if not isinstance(error, ModelUnavailable):
            logs.error("step failed", step=self._step.position, name=self._step.name)
            result = json.dumps(type(error).__name__)
            self._finish(replace(self._step, status=steps.FAILED, result=result))
            return 0.0
        self._withdraw()
        self._attempts += 1
        self._log(error)
        pause = next_pause(self._attempts, error.retry_after_seconds)
        if pause is None:
            raise TurnFailed("model_unavailable", "the model gave no answer at any attempt")
        return pause

    def _log(self, error: Exception) -> None:
        cause = type(error.__cause__ or error).__qualname__
        logs.warning("an attempt at the model failed", step=self._step.position, cause=cause)

    @property
    def response(self) -> Any:
        """The recorded response of a step that is answered. Raises StepFailed."""
        assert self.answered
        value = json.loads(self._step.result)
        if self._step.status == steps.FAILED:
            raise StepFailed(self._step.position, self._step.name, value)
        return value

    def _withdraw(self) -> None:
        assert self._mark is not None
        self._writer.withdraw(self._mark)

    def _finish(self, step: Step) -> None:
        self._record(step)
        self._step = step


def next_pause(attempts: int, retry_after_seconds: float | None) -> float | None:
    """Seconds to wait after so many failed attempts: doubling, with jitter, and not below what the
    model asks for; None when it is not to be asked again.
    """
    wanted = max(retry_after_seconds or 0.0, 0.0)
    if attempts >= MOST_ATTEMPTS or not wanted <= LONGEST_PAUSE_SECONDS:  # no number, too
        return None
    jitter = random.uniform(0.5, 1)  # noqa: S311 - no secret
    return max(FIRST_PAUSE_SECONDS * 2.0 ** (attempts - 1) * jitter, wanted * (2 - jitter))


def require_recordable(position: int, name: str, request: Any) -> str:
    """The hash of a step's request. Raises TurnFailed when the step cannot be recorded."""
    if not _NAME.fullmatch(str(name)):
        raise TurnFailed(
            "bad_step", f"step {position} needs a name of 1 to 64 of A-Z a-z 0-9 _ . -"
        )
    try:
        return steps.hash_of(request)
    except (TypeError, ValueError, RecursionError):
        raise TurnFailed(
            "bad_step", f"step {position} ({name}) has a request that JSON cannot carry"
        ) from None
