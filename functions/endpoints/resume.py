"""`resume_turn`: GET or POST; streams a turn that exists, from `Last-Event-ID` on."""

from __future__ import annotations

from functools import partial

from flask import Request, Response

from functions.endpoints import front, streaming
from functions.endpoints.service import Service
from functions.turns import admission


def resume_turn(request: Request, service: Service) -> Response:
    """Stream what the caller has missed of the turn, and then the rest of it as it comes."""

    def read(_request: Request, turn_id: str, cursor: int) -> streaming.Admit:
        return partial(
            admission.resume,
            turn_id=turn_id,
            cursor=cursor,
            owners=service.owners,
            settings=service.settings,
        )

    def handle(request: Request) -> Response:
        return streaming.respond(request, service, read)

    return front.serve(request, service.settings, methods=("GET", "POST"), handler=handle)
