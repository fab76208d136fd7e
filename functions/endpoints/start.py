"""`start_turn`: POST a prompt under a turn id; the same again attaches to the same turn."""

from __future__ import annotations

from flask import Request, Response

from functions.endpoints import front, requests, streaming
from functions.endpoints.service import Service
from functions.identity.caller import identify
from functions.turns import admission


def start_turn(request: Request, service: Service) -> Response:
    """Create the turn named by `X-Stream-Turn-Id`, or attach to it, and stream it."""

    def handle(request: Request) -> Response:
        turn_id, cursor = requests.turn_id(request), requests.cursor(request)
        asked = requests.turn_request(request)

        def admit() -> admission.Admitted:
            caller = identify(request.headers, service.settings)
            return admission.start(
                caller.owner_of(turn_id),
                turn_id,
                asked,
                cursor,
                owners=service.owners,
                settings=service.settings,
            )

        return streaming.respond(service.slots, admit)

    return front.serve(request, service.settings, methods=("POST",), handler=handle)
