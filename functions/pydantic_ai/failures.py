"""What comes of an error of Pydantic AI's: the model is asked again, or the turn ends by a code."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_ai import exceptions

from functions.turns.program import ModelFailed, ModelUnavailable

_FILTERED = "the model's provider filtered the answer"
_ENDS_STREAMS = frozenset({"google", "google-cloud", "google-gla", "google-vertex"})
"""Providers whose every response says why it ended: one that does not was cut off."""
_CUT = frozenset(
    {
        "builtins.OSError",
        "httpx.DecodingError",
        "httpx.TransportError",
        "httpx2.DecodingError",
        "httpx2.TransportError",
        "aiohttp.client_exceptions.ClientError",
    }
)
"""What HTTP clients raise when a connection breaks off, or carries damaged bytes. Several providers
let it through from the midst of a stream; which of the clients is installed is their matter, so by
name."""

_NOTHING_CAME = "Streamed response ended without content or tool calls"
"""How every provider of Pydantic AI's words a stream that ended before its first piece. There is no
type for it."""


def sort(error: Exception) -> Exception:
    """The error to end an attempt with: ModelUnavailable, ModelFailed, or `error` as it is.

    Their messages hold no text of the provider's: it may quote the prompt, or a key.
    """
    sorted_ = _sort(error)
    if sorted_ is not error:
        sorted_.__cause__ = sorted_.__cause__ or error  # for the log, which tells its type
    return sorted_


def _sort(error: Exception) -> Exception:
    match error:
        case _ if _was_cut(error):
            return _passing(error, None)
        case exceptions.ModelContextWindowExceededError():
            return ModelFailed("context_overflow", "the conversation is too long for the model")
        case exceptions.ModelAuthenticationError() | exceptions.ModelNotFoundError():
            said = "the model's provider refuses the key, or does not know the model"
            return ModelFailed("model_auth", said)
        case exceptions.ModelQuotaExceededError():
            said = "the quota of the deployment's account with the model's provider is used up"
            return ModelFailed("model_unavailable", said)
        case exceptions.ContentFilterError():
            return ModelFailed("model_refused", _FILTERED)
        case exceptions.ModelRequestRejectedError():
            return ModelFailed("model_refused", "the model's provider refuses the request")
        case exceptions.ModelAPIError():
            # Limits, overload, time-outs, broken streams, and what a provider has no name for.
            return _passing(error, error.retry_after)
        case exceptions.UnexpectedModelBehavior() | ValidationError():
            # Of the provider's client, when a response is not of the form that it knows.
            return ModelFailed("bad_model_response", "the model gave no answer that can be used")
        case exceptions.FallbackExceptionGroup():
            # Of all models that were tried, the one that may answer later is worth the wait.
            each = [sort(one) for one in error.exceptions]
            return next((one for one in each if isinstance(one, ModelUnavailable)), each[-1])
    return error


def _was_cut(error: Exception) -> bool:
    if isinstance(error, exceptions.UnexpectedModelBehavior):
        return error.message == _NOTHING_CAME
    return bool(_CUT & {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__})


def _passing(error: Exception, retry_after_seconds: float | None) -> ModelUnavailable:
    return ModelUnavailable(str(error), retry_after_seconds=retry_after_seconds)


def ending(error: Exception) -> Exception:
    """The error to end a turn with, for one that Pydantic AI raises outside of any step: when its
    retries are used up, or the deadline of a request and all its attempts has passed.
    """
    sorted_ = sort(error)
    if isinstance(sorted_, ModelUnavailable):
        return ModelFailed("model_unavailable", "the model gave no answer in its time")
    return sorted_


def require_whole(response: Any) -> None:
    """Raise for a response (as JSON) that ended before it was whole: ModelFailed when a filter cut
    it off, ModelUnavailable when its stream just ended.
    """
    if response.get("finish_reason") == "content_filter":
        raise ModelFailed("model_refused", _FILTERED)
    if response.get("provider_name") in _ENDS_STREAMS and response.get("finish_reason") is None:
        raise ModelUnavailable("the stream ended before the response did")
