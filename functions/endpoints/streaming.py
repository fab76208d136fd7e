"""Turning a request into an SSE response, and holding its slot while it is open."""

from __future__ import annotations

from collections.abc import Callable

from flask import Request, Response

from functions.endpoints import peer, requests
from functions.endpoints.meter import Meter
from functions.endpoints.service import Service
from functions.identity.caller import identify
from functions.turns.admission import Admitted, AtEnd

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    # no-transform keeps proxies from compressing, which would hold events back.
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}

Admit = Callable[[str], Admitted]
"""Admits the owner that it is given to a turn."""


def respond(
    request: Request, service: Service, read: Callable[[Request, str, int], Admit]
) -> Response:
    """Take a slot, `read` the request, identify the caller, admit it, stream.

    `read` is given the turn's id and the cursor, and refuses a bad request before the App Check
    token is used up. The slot comes first: reading a body may take long, and must not take more
    threads than streams may. It is given back when the response closes.

    Raises AtCapacity, Draining, and what `read`, `identify` and admitting raise.
    """
    service.watch()
    release = service.slots.take()
    meter = Meter(lambda: service.slots.open)
    try:
        turn_id = requests.turn_id(request)
        admit = read(request, turn_id, requests.cursor(request))
        caller = identify(request.headers, service.settings)
        admitted = admit(caller.owner_of(turn_id))
    except BaseException:
        release()
        raise
    if isinstance(admitted, AtEnd):
        release()
        return Response(status=204)
    admitted.count_from(meter.began)
    pieces = peer.until_vanished(
        request, meter.pieces(admitted), silence_seconds=1.5 * service.settings.heartbeat_seconds
    )
    response = Response(pieces, headers=HEADERS)
    response.call_on_close(lambda: meter.ended(admitted))
    response.call_on_close(release)
    return response
