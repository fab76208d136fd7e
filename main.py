"""Composition: what is deployed, and how. `firebase deploy` reads the functions off this module."""

from firebase_functions import https_fn
from firebase_functions.options import MemoryOption
from flask import Request, Response

from functions.agents import agent
from functions.endpoints import cancel, resume, start, step
from functions.endpoints.service import Service
from functions.settings import THREADS

service = Service(agent)

_streaming = https_fn.on_request(
    region="us-central1",
    memory=MemoryOption.MB_512,
    cpu=1,
    timeout_sec=3600,
    concurrency=THREADS,
    invoker="public",
)


@_streaming
def start_turn(request: Request) -> Response:
    """Start a turn, or attach to it."""
    return start.start_turn(request, service)


@_streaming
def run_tool_step(request: Request) -> Response:
    """Decide a step that waits, and stream the turn from there."""
    return step.run_tool_step(request, service)


@https_fn.on_request(
    region="us-central1",
    memory=MemoryOption.MB_256,
    cpu=1,
    timeout_sec=60,
    concurrency=THREADS,
    invoker="public",
)
def cancel_turn(request: Request) -> Response:
    """End a turn as cancelled."""
    return cancel.cancel_turn(request, service)


@_streaming
def resume_turn(request: Request) -> Response:
    """Stream a turn from the caller's cursor on."""
    return resume.resume_turn(request, service)
