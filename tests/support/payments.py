"""The payment server of `make dev` as a real process, and what it says took place."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from typing import Any, Self

from dev import payments
from dev.ports import free_port
from dev.project import ROOT
from tests.support.emulator import wait_for_port
from tests.support.patience import PATIENCE_SECONDS


class PaymentServer:
    """A context manager; `url` is what `DEMO_PAYMENTS_URL` is set to."""

    def __init__(self) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(payments.program(self._port), cwd=ROOT)
        try:
            wait_for_port(self._port, self._process)
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def effects(self) -> dict[str, Any]:
        """What took place, counted by the server."""
        return self.call("/effects")[1]

    def post(self, path: str, key: str | None, body: object) -> tuple[int, dict[str, Any]]:
        """Ask for an effect: the answer's status and body."""
        return self.call(path, {} if key is None else {"Idempotency-Key": key}, body)

    def call(
        self, path: str, headers: dict[str, str] | None = None, body: object = None
    ) -> tuple[int, dict[str, Any]]:
        """Send one request, a POST if it has a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)
