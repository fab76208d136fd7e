"""The functions of `app`, as deployed, but that the Admin SDK finds Google on loopback."""

from __future__ import annotations

from tests.support import loopback  # noqa: F401 - sets the addresses, before any request
from tests.support.app import resume_turn, start_turn

__all__ = ["resume_turn", "start_turn"]
