"""The agent this package serves. Edit here: return your own `Agent`.

`AGENT` in `.env` chooses between those that come with it: `demo`, which needs no key, and `gemini`,
which needs the secret GEMINI_API_KEY. It is read when the functions are declared, so a deployment
asks for the secrets of its own agent alone.
"""

import os

from firebase_functions.params import SecretParam

from functions.turns.program import Agent

GEMINI_API_KEY = SecretParam("GEMINI_API_KEY", label="Gemini API key")

CHOICE = os.environ.get("AGENT") or "demo"
if CHOICE not in {"demo", "gemini"}:
    raise ValueError(f"AGENT must be demo or gemini, not {CHOICE!r}")

SECRETS = [GEMINI_API_KEY] if CHOICE == "gemini" else []
"""What the functions that run turns are given. `firebase deploy` asks for what is missing."""


def agent() -> Agent:
    """The agent of every turn. Called when a turn starts, and not before: import what the agent
    needs in here, and make it once.
    """
    if CHOICE == "gemini":
        from functions.agents import gemini

        return gemini.agent()

    from functions.agents import demo

    return demo.AGENT
