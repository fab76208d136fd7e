"""`finishturn`: a task of Cloud Tasks; finishes a turn that nobody is connected to.

Only Cloud Tasks may call it: it is deployed without a public invoker, and the platform checks that.
It takes no App Check token, and answers nothing about the turn.
"""

from __future__ import annotations

import time

from flask import Request, Response, jsonify

from functions import logs
from functions.endpoints import front, requests
from functions.endpoints.service import Service
from functions.errors import Rejected, TooEarly
from functions.turns.finish import finish
from functions.turns.queue import REQUEST_SECONDS

END_MARGIN_SECONDS = 30.0
"""An owner is let go so long before the platform would cut its request."""
EARLY_SECONDS = 2.0
"""A task may come so much before it is due: clocks differ."""


def finish_turn(request: Request, service: Service) -> Response:
    """Look at the turn that the task names; finish it if nobody else does, or look again later.

    Only an answer of 2xx takes the task off its queue. A task that makes no sense gets one, too:
    sent again, it would make no more.
    """
    settings = service.settings
    until = time.monotonic() + REQUEST_SECONDS - END_MARGIN_SECONDS

    def handle(request: Request) -> Response:
        service.watch()
        release = service.slots.take()
        try:
            try:
                key, due = requests.task(request)
            except Rejected as error:
                logs.warning("a task without sense was dropped", why=error.message)
                return jsonify(result="dropped")
            if due - time.time() > EARLY_SECONDS:
                raise TooEarly("the task is not due yet")
            again = finish(key, owners=service.owners, settings=settings, until=until)
            if again is None:
                return jsonify(result="over")
            service.queue.look(key, again)
            return jsonify(result="later")
        finally:
            release()

    return front.serve(request, settings, methods=("POST",), handler=handle)
