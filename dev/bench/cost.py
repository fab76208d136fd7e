"""`python -m dev.bench.cost`: what 1,000 turns cost, from one that is measured and from prices.

    venv/bin/python -m dev.bench.cost --report docs/guides/cost.md

A typical turn runs on real processes: a signed-in user, a session, one look-up, one reconnection to
another container. A proxy before each process counts what Firestore would bill. The prices are
assumptions, each with the page it was taken from; edit them for your region.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dev import containers, token
from dev.bench.journal import client
from dev.bench.journal.counting import CountingProxy
from dev.project import LOCAL_PROJECT

PROMPT = "Look up order 20, then tell me about leases (query=3) rate=50 silence=2 words=400"
CUT_AFTER_SECONDS = 4.0
_END = re.compile(rb"\nevent: (done|error)\n")
_BEGIN, _FINISH = "<!-- measured -->", "<!-- end -->"


@dataclass(frozen=True)
class Prices:
    """In US dollars, as assumed in November 2026 for us-central1, without any free tier."""

    read: float = 0.03 / 100_000
    write: float = 0.09 / 100_000
    delete: float = 0.01 / 100_000
    gib_month: float = 0.15
    """Firestore: https://cloud.google.com/firestore/pricing"""
    vcpu_second: float = 0.000024
    gib_second: float = 0.0000025
    call: float = 0.40 / 1_000_000
    """Cloud Run, request-based: https://cloud.google.com/run/pricing"""
    gib_sent: float = 0.12
    """Network, to the internet: https://cloud.google.com/vpc/network-pricing"""
    attestation: float = 1.00 / 1_000
    """reCAPTCHA Enterprise: https://cloud.google.com/recaptcha/docs/billing-information"""
    task: float = 0.40 / 1_000_000
    """Cloud Tasks: https://cloud.google.com/tasks/pricing"""
    gib_logged: float = 0.50
    """Cloud Logging: https://cloud.google.com/stackdriver/pricing"""


@dataclass(frozen=True)
class Turn:
    """What one turn took."""

    seconds: float
    calls: int
    """Requests with a stream: a fresh App Check token each."""
    writes: int
    reads: int
    stored_documents: int
    sent_bytes: int
    stored_bytes: int
    tasks: int = 1
    logged_bytes: int = 6_000
    """Assumed: a dozen lines."""


def reckon(turn: Turn, prices: Prices, *, streams: int, turns: int = 1000) -> dict[str, float]:
    """What so many such turns cost, by item, when a container has `streams` open on average."""
    gib = 2**30
    seconds = turn.seconds * turns / streams
    return {
        f"Firestore: {turn.writes} writes": turn.writes * turns * prices.write,
        f"Firestore: {turn.reads} reads": turn.reads * turns * prices.read,
        f"Firestore: {turn.stored_documents} deletes by TTL": (
            turn.stored_documents * turns * prices.delete
        ),
        "Firestore: stored for a day": turn.stored_bytes * turns / gib * prices.gib_month / 30,
        f"Cloud Run: {turn.seconds:.0f} s of a container with {streams} streams": seconds
        * (prices.vcpu_second + 0.5 * prices.gib_second),
        f"Cloud Run: {turn.calls + turn.tasks} calls": (turn.calls + turn.tasks)
        * turns
        * prices.call,
        f"Network: {turn.sent_bytes / 1000:.0f} kB": turn.sent_bytes
        * turns
        / gib
        * prices.gib_sent,
        f"App Check: {turn.calls} tokens used up, if reCAPTCHA Enterprise makes them": turn.calls
        * turns
        * prices.attestation,
        f"Cloud Tasks: {turn.tasks + 1} operations": (turn.tasks + 1) * turns * prices.task,
        f"Cloud Logging: {turn.logged_bytes / 1000:.0f} kB": turn.logged_bytes
        * turns
        / gib
        * prices.gib_logged,
    }


def table(turn: Turn, prices: Prices) -> str:
    """The reckoning as Markdown: busy containers, and one stream alone in its container."""
    busy, alone = reckon(turn, prices, streams=20), reckon(turn, prices, streams=1)
    rows = ["| 1,000 turns | busy: 20 streams a container | quiet: one |", "| --- | --- | --- |"]
    for (name, cost), (_, other) in zip(busy.items(), alone.items()):
        rows.append(f"| {name.split(' of a container')[0]} | ${cost:.4f} | ${other:.4f} |")
    rows.append(f"| **all** | **${sum(busy.values()):.2f}** | **${sum(alone.values()):.2f}** |")
    return "\n".join(rows)


def measure() -> tuple[Turn, Counter[str]]:
    """Run the turn; what it took, and its writes by collection."""
    from functions.turns import record
    from operate import cost, reading

    with ExitStack() as stack:
        storage = stack.enter_context(containers.emulator())
        proxies = [stack.enter_context(CountingProxy(storage.address)) for _ in range(2)]
        settings = {"FIREBASE_AUTH_EMULATOR_HOST": "127.0.0.1:1"}
        starter, other = (
            stack.enter_context(containers.function(name, proxy.address, settings))
            for name, proxy in zip(("start_turn", "resume_turn"), proxies)
        )
        os.environ["FIRESTORE_EMULATOR_HOST"] = storage.address
        os.environ["GCLOUD_PROJECT"] = LOCAL_PROJECT
        while b"event: done" not in _run(starter.port, client.new_turn_id(), "rate=500", None, 30):
            time.sleep(1)  # the emulator is not awake yet
        for proxy in proxies:
            proxy.bill.written.clear()
            proxy.bill.reads = 0
        turn_id, begun = client.new_turn_id(), time.monotonic()
        first = _run(starter.port, turn_id, PROMPT, None, CUT_AFTER_SECONDS)
        last = re.findall(rb"\nid: ([0-9]+)\n", b"\n" + first)[-1].decode()
        rest = _run(other.port, turn_id, None, last, 60)
        seconds = time.monotonic() - begun
        if b"event: done" not in rest:
            raise RuntimeError(f"the turn did not end: {rest[-300:]!r}")
        time.sleep(1)  # what is still to be sent after the terminal event
        written = sum((proxy.bill.written for proxy in proxies), Counter())
        reads = sum(proxy.bill.reads for proxy in proxies)
        found = reading.turn(record.turn_key("uid:ada", turn_id))
        assert found is not None
    written.pop("agent_app_check_tokens", None)  # of the stand-in; Google's own keeps no document
    kept = ("agent_turn_events", "agent_turn_steps")
    return (
        Turn(
            seconds=round(seconds, 1),
            calls=2,
            writes=written.total(),
            reads=reads,
            stored_documents=1 + sum(written[name] for name in kept),
            sent_bytes=len(first) + len(rest),
            stored_bytes=cost.of(found).stored_bytes,
        ),
        written,
    )


def _run(port: int, turn_id: str, prompt: str | None, cursor: str | None, seconds: float) -> bytes:
    """One attempt of a signed-in user, cut after so long; the bytes that came."""
    asked = {"prompt": prompt, "sessionId": "cost"}
    body = b"" if prompt is None else json.dumps(asked).encode()
    user = token.encode(token.id_claims(LOCAL_PROJECT, "ada", token.ID_TTL_SECONDS, time.time()))
    head = [
        f"{'GET' if prompt is None else 'POST'} / HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        f"X-Stream-Turn-Id: {turn_id}",
        f"X-Firebase-AppCheck: {client.app_check_token()}",
        f"Authorization: Bearer {user}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *([] if cursor is None else [f"Last-Event-ID: {cursor}"]),
    ]
    came, until = b"", time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        while _END.search(came) is None and (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            try:
                piece = connection.recv(1 << 16)
            except socket.timeout:
                break
            if not piece:
                break
            came += piece
    return came


def main() -> int:
    """Measure, reckon, print; with a report, put the result into that file."""
    parser = argparse.ArgumentParser(prog="python -m dev.bench.cost", description=__doc__)
    parser.add_argument("--report", type=Path, help="the guide whose measured part is replaced")
    options = parser.parse_args()
    turn, written = measure()
    parts = ", ".join(f"{count} in `{name}`" for name, count in written.most_common())
    text = f"Measured: {turn!r}\n\nIts writes: {parts}.\n\n{table(turn, Prices())}\n"
    print(text)
    if options.report is not None:
        guide = options.report.read_text("utf-8")
        before, rest = guide.split(_BEGIN)
        after = rest.split(_FINISH)[1]
        options.report.write_text(f"{before}{_BEGIN}\n{text}{_FINISH}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
