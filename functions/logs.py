"""Structured log lines for Cloud Logging that follow one turn over several containers.

Every line carries what its thread works on (turn, run, epoch, correlation id, trace). Prompts,
texts and tokens are never logged.
"""

from __future__ import annotations

import contextvars
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from firebase_functions import logger

if TYPE_CHECKING:
    from werkzeug.datastructures import Headers

_fields: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "log_fields", default=MappingProxyType({})
)
# The SDK's logger prints a line in two writes; two threads at once would tear both lines.
# One thread may come twice: what is cleared away while it writes a line may have a line to write.
_one_line_at_a_time = threading.RLock()
_TRACE = re.compile(r"([0-9a-f]{32})/|00-([0-9a-f]{32})-")

TRACE_FIELD = "logging.googleapis.com/trace"


def trace_id(headers: Headers) -> str | None:
    """The request's trace (32 hex digits) from Google's or the W3C's header, if there is one."""
    for name in ("X-Cloud-Trace-Context", "traceparent"):
        match = _TRACE.match(headers.get(name, ""))
        if match:
            return match[1] or match[2]
    return None


@contextmanager
def context(**fields: Any) -> Iterator[None]:
    """Add `fields` to every line this thread writes inside the block."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def begin(fields: Mapping[str, Any]) -> None:
    """Let every further line of this thread carry exactly `fields`: it now serves something new."""
    _fields.set(fields)


def bind(**fields: Any) -> None:
    """Add `fields` to every further line of this thread, until it begins something new."""
    _fields.set({**_fields.get(), **fields})


def fields() -> Mapping[str, Any]:
    """The fields bound here, to hand to another thread."""
    return _fields.get()


def info(message: str, **more: Any) -> None:
    """Something expected happened."""
    _write(logger.LogSeverity.INFO, message, more)


def warning(message: str, **more: Any) -> None:
    """Something failed that the package recovers from by itself."""
    _write(logger.LogSeverity.WARNING, message, more)


def error(message: str, **more: Any) -> None:
    """Somebody should look. Inside an `except` block the stack is added, without any value.

    An exception's text may hold a prompt or a secret: it is added only where LOG_EXCEPTION_TEXT
    says so, as on the local Emulator Suite.
    """
    exc = sys.exc_info()[1]
    if exc is not None:
        more.update(_told_of(exc))
    _write(logger.LogSeverity.ERROR, message, more)


def take_in_strays() -> None:
    """Have written as such lines what would be printed as plain text, that of exceptions included:
    what ends a thread of an agent's own, what is raised as an object is cleared away, Python's
    warnings, and the warnings and errors that are logged by `logging`.

    The framework prints the latter where LOG_EXECUTION_ID is set, as Google Cloud does. An agent
    that sets up `logging` by itself has its own way with them.
    """
    from functions_framework.execution_id import logging_stream

    threading.excepthook = _thread_ended
    sys.unraisablehook = _ignored
    warnings.showwarning = _warned  # type: ignore[assignment]  # takes no `file=` and `line=`
    logging.lastResort = _Strays(logging.WARNING)
    for handler in logging.root.handlers[:]:
        if getattr(handler, "stream", None) is logging_stream:
            logging.root.removeHandler(handler)


def _thread_ended(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        error("a thread broke down")


def _ignored(args: sys.UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        _write(logger.LogSeverity.ERROR, "an exception was ignored", _told_of(args.exc_value))


def _warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_more: object
) -> None:
    """The first line of it: Pydantic's next ones quote values."""
    said = str(message).partition("\n")[0]
    warning(said, warning=category.__name__, at=f"{filename}:{lineno}")


class _Strays(logging.Handler):
    """Writes what is logged by `logging`: the first line of it, for asyncio's next one is the text
    of an exception.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        """Without a lock of its own: who holds it would wait for a line in whose midst another one
        of a library's comes, which waits for it.
        """
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        severe = record.levelno >= logging.ERROR
        severity = logger.LogSeverity.ERROR if severe else logger.LogSeverity.WARNING
        more: dict[str, Any] = {
            "logger": record.name,
            "at": f"{record.pathname}:{record.lineno}",
        }
        try:
            text = record.getMessage().encode(errors="replace").decode()
        except Exception:  # noqa: BLE001 - the text and its values do not fit together
            text = str(record.msg)
        exc = record.exc_info[1] if record.exc_info else None
        if exc is not None:
            more.update(_told_of(exc))
        _write(severity, text.partition("\n")[0], more)


def _told_of(exc: BaseException) -> dict[str, Any]:
    """What a line says of an exception."""
    told: dict[str, Any] = {"exception": type(exc).__qualname__}
    if _texts_are_logged():
        told["exceptionText"] = _text_of(exc)
    if isinstance(exc, SyntaxError):
        told["at"] = f"{exc.filename}:{exc.lineno}"
    told["stack"] = [
        f"{frame.filename}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(exc.__traceback__)
    ]
    return told


def _texts_are_logged() -> bool:
    return os.environ.get("LOG_EXCEPTION_TEXT") == "true"


def _text_of(exc: BaseException) -> str:
    """Its text, as far as it has one that can be written."""
    try:
        return str(exc).encode(errors="replace").decode()
    except Exception:  # noqa: BLE001 - an agent's own `__str__`
        return ""


def _write(severity: logger.LogSeverity, message: str, more: Mapping[str, Any]) -> None:
    entry: Any = {"severity": severity, "message": message, **_fields.get(), **more}
    # A line that cannot be written (nobody reads any more, no Unicode) changes nothing but itself.
    with _one_line_at_a_time, suppress(OSError, ValueError):
        logger.write(entry)
        # A container can be killed at any time: a line in a buffer would be lost.
        sys.stdout.flush()
        sys.stderr.flush()
