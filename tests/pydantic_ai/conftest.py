"""Turns of this process, as the tests of the shared module have them."""

from tests.turns.conftest import create

__all__ = ["create"]
