"""`start_turn`: POST a prompt under a turn id; the same again attaches to the same turn."""

from __future__ import annotations

from functools import partial

from flask import Request, Response

from functions.endpoints import front, requests, streaming
from functions.endpoints.service import Service
from functions.errors import SignInRequired
from functions.turns import admission


def start_turn(request: Request, service: Service) -> Response:
    """Create the turn named by `X-Stream-Turn-Id`, or attach to it, and stream it."""

    def read(request: Request, turn_id: str, cursor: int) -> streaming.Admit:
        asked = requests.turn_request(request)
        if asked.session_id is not None and not request.headers.get("Authorization"):
            raise SignInRequired("a session needs a signed-in user: send Authorization: Bearer")
        return partial(
            admission.start,
            turn_id=turn_id,
            cursor=cursor,
            request=asked,
            owners=service.owners,
            settings=service.settings,
        )

    def handle(request: Request) -> Response:
        return streaming.respond(request, service, read)

    return front.serve(request, service.settings, methods=("POST",), handler=handle)
