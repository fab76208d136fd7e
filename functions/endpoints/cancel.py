"""`cancel_turn`: POST; ends a turn as cancelled, whoever runs it. Answers with its status."""

from __future__ import annotations

from flask import Request, Response, jsonify

from functions.endpoints import front, requests
from functions.endpoints.service import Service
from functions.identity.caller import identify
from functions.turns.cancel import cancel


def cancel_turn(request: Request, service: Service) -> Response:
    """Stop the turn for good. Idempotent: a turn that has ended stays as it ended."""

    def handle(request: Request) -> Response:
        turn_id = requests.turn_id(request)
        caller = identify(request.headers, service.settings)
        return jsonify(status=cancel(caller.owner_of(turn_id), turn_id))

    return front.serve(request, service.settings, methods=("POST",), handler=handle)
