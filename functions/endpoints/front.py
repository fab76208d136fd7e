"""What stands before every function: paths, methods, CORS, and errors as JSON.

Whatever happens, the answer has its CORS headers and no exception text.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import functions_framework
from flask import Request, Response, jsonify
from flask import request as current_request
from gunicorn.config import LimitRequestFieldSize
from werkzeug.exceptions import HTTPException

from functions import logs
from functions.errors import Answered, MethodNotAllowed, Unavailable, UnknownPath
from functions.settings import Settings

HEALTH_PATH = "/__/health"
PREFLIGHT_SECONDS = 7200
"""How long a browser may remember a preflight; no browser honours more than two hours."""

REQUEST_HEADERS = (
    "Authorization, Content-Type, Last-Event-ID, X-Firebase-AppCheck, X-Stream-Turn-Id"
)
EXPOSED_HEADERS = "Retry-After, X-Correlation-Id"

HEADER_BYTES = 64 * 1024
"""A header that is longer is refused by the HTTP server itself: as HTML, without CORS."""

Handler = Callable[[Request], Response]


def answer_for_the_framework(settings: Settings) -> None:
    """Answer, as `serve` does, what functions-framework would refuse by itself: as HTML, no CORS.

    That is `/favicon.ico`, `/robots.txt`, a path that its router does not take, and a header longer
    than its HTTP server takes by default. Called while the framework loads `main`, before it makes
    that server; does nothing where it does not.
    """
    LimitRequestFieldSize.default = HEADER_BYTES

    def refuse(_request: Request) -> Response:
        raise UnknownPath("this function has no such path")

    def answer(_error: HTTPException) -> Response:
        asked = current_request
        return serve(asked, settings, methods=(asked.method,), handler=refuse)

    functions_framework.errorhandler(HTTPException)(answer)


def serve(
    request: Request, settings: Settings, *, methods: tuple[str, ...], handler: Handler
) -> Response:
    """Answer `request` with `handler`, or with an error as JSON. Never raises."""
    trace = logs.trace_id(request.headers)
    correlation_id = trace or secrets.token_hex(16)
    fields: dict[str, Any] = {"correlationId": correlation_id}
    if trace and settings.project:
        fields[logs.TRACE_FIELD] = f"projects/{settings.project}/traces/{trace}"
    logs.begin(fields)
    response = _answer(request, methods, handler, correlation_id)
    if not response.is_streamed:
        _drain(request)
    response.headers["X-Correlation-Id"] = correlation_id
    _allow_origin(request, response, settings)
    return response


def _answer(
    request: Request, methods: tuple[str, ...], handler: Handler, correlation_id: str
) -> Response:
    try:
        if request.path == HEALTH_PATH:
            return jsonify(status="ok")
        if request.path != "/":
            raise UnknownPath("this function has no such path")
        if request.method == "OPTIONS":
            return _preflight(methods)
        if request.method not in methods:
            allowed = ", ".join((*methods, "OPTIONS"))
            raise MethodNotAllowed(f"use {allowed}", headers={"Allow": allowed})
        return handler(request)
    except Answered as error:
        log = logs.warning if isinstance(error, Unavailable) else logs.info
        log("request refused", code=error.code, status=error.status, reason=error.message)
        known = error.correlation_id or correlation_id
        response = _error(error.status, error.code, error.message, known, error.more)
        response.headers.update(error.headers)
        return response
    except BaseException:  # noqa: BLE001 - the edge: the framework would show it, or end the process
        logs.error("unhandled exception")
        return _error(500, "internal", "the request failed on the server", correlation_id)


def _drain(request: Request) -> None:
    """Read what is left of the body, in pieces, and forget it.

    The framework would read it whole into memory; unread, it would break the connection.
    """
    try:
        while request.stream.read(64 * 1024):
            pass
    except Exception:  # noqa: BLE001 - the client left in the middle: there is nothing to answer
        logs.info("the body ended early")


def _error(
    status: int,
    code: str,
    message: str,
    correlation_id: str,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    error = {"code": code, "message": message, "correlationId": correlation_id, **more}
    response = jsonify(error=error)
    response.status_code = status
    response.headers["Cache-Control"] = "no-store"
    return response


def _preflight(methods: tuple[str, ...]) -> Response:
    response = Response(status=204)
    response.headers["Access-Control-Allow-Methods"] = ", ".join(methods)
    response.headers["Access-Control-Allow-Headers"] = REQUEST_HEADERS
    response.headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)
    return response


def _allow_origin(request: Request, response: Response, settings: Settings) -> None:
    """Let a page on an allowed origin read the answer; say nothing of CORS to any other."""
    response.headers.add("Vary", "Origin")
    origin = request.headers.get("Origin", "")
    if origin in settings.allowed_origins:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
    else:
        for name in ("Allow-Methods", "Allow-Headers", "Max-Age"):
            response.headers.pop(f"Access-Control-{name}", None)
