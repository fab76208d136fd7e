"""Turning an admitted turn into an SSE response, and holding its slot while it is open."""

from __future__ import annotations

from collections.abc import Callable

from flask import Request, Response

from functions.endpoints.service import Service
from functions.identity.caller import identify
from functions.turns.admission import Admitted, AtEnd

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    # no-transform keeps proxies from compressing, which would hold events back.
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


def respond(
    request: Request, service: Service, turn_id: str, admit: Callable[[str], Admitted]
) -> Response:
    """Take a slot, identify the caller, admit the owner of `turn_id`, stream.

    The slot is given back when the response closes. Raises AtCapacity before a token is used up,
    then what `identify` and `admit` raise.
    """
    release = service.slots.take()
    try:
        caller = identify(request.headers, service.settings)
        admitted = admit(caller.owner_of(turn_id))
    except BaseException:
        release()
        raise
    if isinstance(admitted, AtEnd):
        release()
        return Response(status=204)
    response = Response(iter(admitted), headers=HEADERS)
    response.call_on_close(release)
    return response
