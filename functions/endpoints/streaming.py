"""Turning an admitted turn into an SSE response, and holding its slot while it is open."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response

from functions.endpoints.slots import Slots
from functions.turns.admission import Admitted, AtEnd

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    # no-transform keeps proxies from compressing, which would hold events back.
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


def respond(slots: Slots, admit: Callable[[], Admitted]) -> Response:
    """Take a slot, admit the caller, stream. The slot is given back when the response closes.

    Raises AtCapacity, before `admit` is called, and what `admit` raises.
    """
    release = slots.take()
    try:
        admitted = admit()
    except BaseException:
        release()
        raise
    if isinstance(admitted, AtEnd):
        release()
        return Response(status=204)
    response = Response(iter(admitted), headers=HEADERS)
    response.call_on_close(release)
    return response
