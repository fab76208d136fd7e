"""`start_turn`: POST a prompt under a turn id; the same again attaches to the same turn."""

from __future__ import annotations

from functools import partial

from flask import Request, Response

from functions.endpoints import front, requests, streaming
from functions.endpoints.service import Service
from functions.turns import admission


def start_turn(request: Request, service: Service) -> Response:
    """Create the turn named by `X-Stream-Turn-Id`, or attach to it, and stream it."""

    def handle(request: Request) -> Response:
        turn_id = requests.turn_id(request)
        admit = partial(
            admission.start,
            turn_id=turn_id,
            cursor=requests.cursor(request),
            request=requests.turn_request(request),
            owners=service.owners,
            settings=service.settings,
        )
        return streaming.respond(request, service, turn_id, admit)

    return front.serve(request, service.settings, methods=("POST",), handler=handle)
