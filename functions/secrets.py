"""Secrets: held by Secret Manager, declared where they are used, read when they are first needed.

    GEMINI_API_KEY = SecretParam("GEMINI_API_KEY", label="Gemini API key")

in the module that uses it, `secrets=[GEMINI_API_KEY]` in the options of the functions that need it
(`main.py`), and `secret(GEMINI_API_KEY)` for its value. `firebase deploy` asks for a value that is
not there yet; the Emulator Suite reads `.secret.local`.
"""

from __future__ import annotations

from firebase_functions.params import SecretParam

from functions import logs
from functions.errors import NotConfigured


def secret(param: SecretParam) -> str:
    """A secret's value, without the line end that a pipe into the CLI leaves.

    Raises NotConfigured, which names the secret, when this deployment has none.
    """
    value = param.value.strip()
    if not value:
        logs.error("a secret is missing", secret=param.name)
        raise NotConfigured(f"the secret {param.name} is not set for this deployment")
    return value
