"""The payment server of the demo: one effect for each key, whoever asks, and however often."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from dev import payments
from dev.project import ROOT
from tests.support.patience import PATIENCE_SECONDS
from tests.support.payments import PaymentServer

ORDER = {"order": "A-17", "cents": 1900}


@pytest.fixture
def server() -> Iterator[PaymentServer]:
    """A server that has done nothing."""
    with PaymentServer() as running:
        yield running


def test_a_repeated_key_gets_the_same_answer_and_has_one_effect(server: PaymentServer) -> None:
    answers = [server.post("/charges", "k", ORDER) for _ in range(3)]
    assert answers == [(200, {"id": "charge-1", **ORDER})] * 3
    effects = server.effects()
    assert (effects["charges"], effects["refunds"], effects["calls"]) == (1, 0, 3)
    assert effects["effects"] == [
        {"kind": "charge", "id": "charge-1", **ORDER, "key": "k", "calls": 3}
    ]


def test_another_key_is_another_effect(server: PaymentServer) -> None:
    server.post("/charges", "k1", ORDER)
    server.post("/charges", "k2", ORDER)
    server.post("/refunds", "k3", ORDER)
    effects = server.effects()
    assert (effects["charges"], effects["refunds"], effects["calls"]) == (2, 1, 3)


def test_calls_at_once_with_one_key_have_one_effect(server: PaymentServer) -> None:
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: server.post("/charges", "k", ORDER), range(64)))
    assert answers == [answers[0]] * 64
    effects = server.effects()
    assert (effects["charges"], effects["calls"]) == (1, 64)


@pytest.mark.parametrize(
    ("path", "body"), [("/charges", {**ORDER, "cents": 1}), ("/refunds", ORDER)]
)
def test_a_key_that_was_used_for_something_else_is_refused(
    server: PaymentServer, path: str, body: object
) -> None:
    server.post("/charges", "k", ORDER)
    assert server.post(path, "k", body)[0] == 422
    effects = server.effects()
    assert (effects["charges"], effects["refunds"], effects["calls"]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("path", "key", "body", "status"),
    [
        ("/charges", None, ORDER, 400),
        ("/charges", "k", [], 400),
        ("/charges", "k", {"order": "A-17"}, 400),
        ("/charges", "k", {**ORDER, "cents": 0}, 400),
        ("/charges", "k", {**ORDER, "cents": True}, 400),
        ("/charges", "k", {**ORDER, "more": 1}, 400),
        ("/other", "k", ORDER, 404),
    ],
)
def test_what_is_no_payment_has_no_effect(
    server: PaymentServer, path: str, key: str | None, body: object, status: int
) -> None:
    assert server.post(path, key, body)[0] == status
    assert server.effects()["effects"] == []


def test_a_port_that_is_taken_ends_it_in_plain_words(server: PaymentServer) -> None:
    port = urlsplit(server.url).port
    assert port is not None
    second = subprocess.run(
        payments.program(port),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert second.returncode == 1
    assert f"cannot have port {port}" in second.stderr
    assert "Traceback" not in second.stderr
