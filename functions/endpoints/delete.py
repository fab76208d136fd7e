"""`delete_turns`: POST; deletes one of the caller's turns, or everything that is theirs."""

from __future__ import annotations

from flask import Request, Response, jsonify

from functions.endpoints import front, requests
from functions.endpoints.service import Service
from functions.identity.caller import identify
from functions.turns import deletion


def delete_turns(request: Request, service: Service) -> Response:
    """Delete for good. Idempotent; while the answer says `more`, the same call again goes on."""

    def handle(request: Request) -> Response:
        turn_id = requests.deletion(request)
        caller = identify(request.headers, service.settings, needs_user=turn_id is None)
        if turn_id is None:
            deleted = deletion.delete_owner(caller.owner())
        else:
            deleted = deletion.delete_turn(caller.owner_of(turn_id), turn_id)
        return jsonify(turns=deleted.turns, sessions=deleted.sessions, more=deleted.more)

    return front.serve(request, service.settings, methods=("POST",), handler=handle)
