"""`resume_turn`: GET or POST; streams a turn that exists, from `Last-Event-ID` on."""

from __future__ import annotations

from flask import Request, Response

from functions.endpoints import front, requests, streaming
from functions.endpoints.service import Service
from functions.identity.caller import identify
from functions.turns import admission


def resume_turn(request: Request, service: Service) -> Response:
    """Stream what the caller has missed of the turn, and then the rest of it as it comes."""

    def handle(request: Request) -> Response:
        turn_id, cursor = requests.turn_id(request), requests.cursor(request)

        def admit() -> admission.Admitted:
            caller = identify(request.headers, service.settings)
            return admission.resume(
                caller.owner_of(turn_id),
                turn_id,
                cursor,
                owners=service.owners,
                settings=service.settings,
            )

        return streaming.respond(service.slots, admit)

    return front.serve(request, service.settings, methods=("GET", "POST"), handler=handle)
