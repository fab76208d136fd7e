"""`resume_turn`: GET or POST; streams a turn that exists, from `Last-Event-ID` on."""

from __future__ import annotations

from functools import partial

from flask import Request, Response

from functions.endpoints import front, requests, streaming
from functions.endpoints.service import Service
from functions.turns import admission


def resume_turn(request: Request, service: Service) -> Response:
    """Stream what the caller has missed of the turn, and then the rest of it as it comes."""

    def handle(request: Request) -> Response:
        turn_id = requests.turn_id(request)
        admit = partial(
            admission.resume,
            turn_id=turn_id,
            cursor=requests.cursor(request),
            owners=service.owners,
            settings=service.settings,
        )
        return streaming.respond(request, service, turn_id, admit)

    return front.serve(request, service.settings, methods=("GET", "POST"), handler=handle)
