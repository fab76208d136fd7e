"""The functions of `main`, as deployed, but that the Admin SDK finds Google on loopback."""

from __future__ import annotations

import main
from tests.support import loopback  # noqa: F401 - sets the addresses, before any request

globals().update(
    {name: value for name, value in vars(main).items() if hasattr(value, "__firebase_endpoint__")}
)
