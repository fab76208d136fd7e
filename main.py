"""Composition: what is deployed, and how. `firebase deploy` reads the functions off this module."""

from collections.abc import Callable
from functools import partial
from typing import Any

from firebase_functions import https_fn, tasks_fn
from firebase_functions.options import MemoryOption, RateLimits, RetryConfig
from flask import Request, Response

from functions.agents import SECRETS, agent
from functions.endpoints import cancel, delete, finish, front, resume, sessions, start, step
from functions.endpoints.service import Service
from functions.settings import MAX_INSTANCES, MIN_INSTANCES, REGION, THREADS

service = Service(agent)
front.answer_for_the_framework(service.settings)

_container: dict[str, Any] = {
    "region": REGION,
    "memory": MemoryOption.MB_512,
    "cpu": 1,
    "concurrency": THREADS,
    "max_instances": MAX_INSTANCES,
}
"""What is so for every function."""

_streaming = partial(
    https_fn.on_request, **_container, timeout_sec=3600, invoker="public", secrets=SECRETS
)
_short = partial(
    https_fn.on_request, **_container, timeout_sec=60, invoker="public", min_instances=0
)


@_streaming(min_instances=MIN_INSTANCES)
def start_turn(request: Request) -> Response:
    """Start a turn, or attach to it."""
    return start.start_turn(request, service)


@_streaming(min_instances=0)
def resume_turn(request: Request) -> Response:
    """Stream a turn from the caller's cursor on."""
    return resume.resume_turn(request, service)


@_streaming(min_instances=0)
def run_tool_step(request: Request) -> Response:
    """Decide a step that waits, and stream the turn from there."""
    return step.run_tool_step(request, service)


@_short()
def cancel_turn(request: Request) -> Response:
    """End a turn as cancelled."""
    return cancel.cancel_turn(request, service)


@_short()
def turn_sessions(request: Request) -> Response:
    """List, read or delete one's sessions."""
    return sessions.serve_sessions(request, service)


@_short()
def delete_turns(request: Request) -> Response:
    """Delete one of one's turns, or everything."""
    return delete.delete_turns(request, service)


def _on_task(function: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Declare a function that a queue of Cloud Tasks calls, and make it the queue.

    It reads its requests itself: the SDK's own handler answers a malformed body with 500, which
    brings it back again and again, and writes it to the log.
    """
    declared = tasks_fn.on_task_dispatched(
        **_container,
        timeout_sec=1800,
        secrets=SECRETS,
        min_instances=0,
        # Of tasks that could not be looked after: Firestore or the container had a bad time.
        retry_config=RetryConfig(
            max_attempts=1000, min_backoff_seconds=5, max_backoff_seconds=60, max_doublings=4
        ),
        rate_limits=RateLimits(max_concurrent_dispatches=500, max_dispatches_per_second=100),
    )(function)  # type: ignore[arg-type]  # of which only the declaration is taken
    for name in ("__firebase_endpoint__", "__required_apis"):
        setattr(function, name, getattr(declared, name))
    return function


@_on_task
def finishturn(request: Request) -> Response:
    """Finish a turn that nobody is connected to. Only Cloud Tasks may call it."""
    return finish.finish_turn(request, service)
