"""Secrets: read when they are needed; a missing one is said by name."""

from __future__ import annotations

import pytest
from firebase_functions.params import SecretParam

from functions.errors import NotConfigured
from functions.secrets import secret

KEY = SecretParam("TEST_SECRET_KEY")


def test_a_secret_is_read_without_the_line_end_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """`echo … | firebase functions:secrets:set` leaves one."""
    monkeypatch.setenv("TEST_SECRET_KEY", "sk-1234\n")
    assert secret(KEY) == "sk-1234"


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_missing_secret_is_503_by_name(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """It is looked for at first use only; coming back does not help."""
    if value is None:
        monkeypatch.delenv("TEST_SECRET_KEY", raising=False)
    else:
        monkeypatch.setenv("TEST_SECRET_KEY", value)
    with pytest.raises(NotConfigured, match="TEST_SECRET_KEY") as refused:
        secret(KEY)
    assert (refused.value.status, refused.value.headers) == (503, {})
