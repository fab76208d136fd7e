"""The demo agent's tools: real work on real parts, one for each way in which a tool may act once.

The payments go to a small server that runs in development only (`dev/payments.py`); where
`DEMO_PAYMENTS_URL` is not set they fail with words that say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from functions import firestore
from functions.turns.tools import Call, Policy, ToolError, tool

TICKETS = "demo_tickets"
"""The collection of the tickets, closed to clients."""

LONGEST_QUERY_SECONDS = 300.0

_PAYMENT_SECONDS = 10.0


@tool(policy=Policy.TRANSACTIONAL)
def open_ticket(call: Call, *, subject: str) -> dict[str, Any]:
    """Open a support ticket: a write of the transaction that records the outcome."""
    name = hashlib.sha256(call.idempotency_key.encode()).hexdigest()[:16]
    ticket = firestore.client().collection(TICKETS).document(name)
    call.staged.create(ticket, {"subject": subject, "status": "open"})
    return {"ticket": name, "subject": subject}


@tool(policy=Policy.IDEMPOTENT, timeout_seconds=LONGEST_QUERY_SECONDS + 30)
def slow_query(_call: Call, *, order: str, seconds: float = 25.0) -> dict[str, Any]:
    """Look up the lines of an order. Says nothing for so many seconds; same order, same lines."""
    if not 0 <= seconds <= LONGEST_QUERY_SECONDS:
        raise ToolError(f"a query takes 0 to {LONGEST_QUERY_SECONDS:g} seconds")
    time.sleep(seconds)
    rows = [{"item": "a fence", "cents": 1200}, {"item": "a lease", "cents": 700}]
    return {"order": order, "rows": rows}


@tool(policy=Policy.IDEMPOTENT, timeout_seconds=30)
def charge(call: Call, *, order: str, cents: int) -> dict[str, Any]:
    """Charge an order. The payment server knows a repeated key and charges once."""
    return _pay("charges", call.idempotency_key, order, cents)


@tool(policy=Policy.IDEMPOTENT, timeout_seconds=30, approval_seconds=600)
def refund(call: Call, *, order: str, cents: int) -> dict[str, Any]:
    """Refund an order, once a person has approved it."""
    return _pay("refunds", call.idempotency_key, order, cents)


def _pay(what: str, key: str, order: str, cents: int) -> dict[str, Any]:
    """Post to the payment server; its answer. Raises ToolError when it refuses or says nothing."""
    base = os.environ.get("DEMO_PAYMENTS_URL", "")
    if not base.startswith("http://"):
        raise ToolError("the payment server runs in development only")
    request = urllib.request.Request(  # noqa: S310 - checked to be HTTP
        f"{base}/{what}",
        data=json.dumps({"order": order, "cents": cents}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
    )
    try:
        with urllib.request.urlopen(request, timeout=_PAYMENT_SECONDS) as response:  # noqa: S310 - see above
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as refusal:
        with refusal:
            raise ToolError(f"the payment server refused: {refusal.code}") from None
    except (OSError, HTTPException, ValueError):
        # Under the same key it could be asked again; a person may want to look first.
        raise ToolError("the payment server gave no answer; it may have acted or not") from None
    return answer
