"""One model step that is not recorded yet: asked, asked again after what passes, then recorded.

An attempt that fails has its text withdrawn by a `rewind` of the same epoch. So what is recorded,
and what a client is left with, is the text of the attempt that was answered.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

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


ModelFailure = Literal[
    "model_refused", "model_auth", "model_unavailable", "context_overflow", "bad_model_response"
]


class ModelUnavailable(Exception):
    """Raised by a model call that may succeed later: a rate limit, an overload, a time-out, a
    stream that broke off. The step withdraws its text and asks again, with back-off.
    """

    def __init__(self, why: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_seconds = retry_after_seconds
        """How long the model wants to be left alone; None: it does not say."""


class ModelFailed(TurnFailed):
    """Raised by a model call that no second try can save: withdraws its text and ends the turn."""

    def __init__(
        self,
        code: ModelFailure,
        message: str,
    ) -> None:
        super().__init__(code, message)


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
            self._withdraw()
            raise error
        if not isinstance(error, ModelUnavailable):
            logs.error("step failed", step=self._step.position, name=self._step.name)
            result = json.dumps(type(error).__name__)
            self._finish(replace(self._step, status=steps.FAILED, result=result))
            return 0.0
        self._withdraw()
        self._attempts += 1
        pause = next_pause(self._attempts, error.retry_after_seconds)
        logs.warning("the model is to be asked again", step=self._step.position, cause=str(error))
        if pause is None:
            raise TurnFailed("model_unavailable", f"the model does not answer: {error}")
        return pause

    def outcome(self) -> Step:
        """The recorded step."""
        assert self.answered
        return self._step

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
    wanted = retry_after_seconds or 0.0
    if attempts >= MOST_ATTEMPTS or wanted > LONGEST_PAUSE_SECONDS:
        return None
    jitter = random.uniform(0.5, 1)  # noqa: S311 - no secret
    if retry_after_seconds is not None:
        return wanted * (2 - jitter)
    return FIRST_PAUSE_SECONDS * 2.0 ** (attempts - 1) * jitter
