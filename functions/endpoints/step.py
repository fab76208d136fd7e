"""`run_tool_step`: POST a person's decision on a step that waits; streams the turn from there."""

from __future__ import annotations

from functools import partial

from flask import Request, Response

from functions.endpoints import front, requests, streaming
from functions.endpoints.service import Service
from functions.turns.decide import decide


def run_tool_step(request: Request, service: Service) -> Response:
    """Record the decision, run the step and the rest of the turn, and stream it.

    A step that is decided or finished already just streams.
    """

    def read(request: Request, turn_id: str, cursor: int) -> streaming.Admit:
        position, decision = requests.step_decision(request)
        return partial(
            decide,
            turn_id=turn_id,
            position=position,
            decision=decision,
            cursor=cursor,
            owners=service.owners,
            settings=service.settings,
        )

    def handle(request: Request) -> Response:
        return streaming.respond(request, service, read)

    return front.serve(request, service.settings, methods=("POST",), handler=handle)
