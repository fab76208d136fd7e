"""A Gemini model with the demo's tools, by Pydantic AI: a real agent to start from.

`GEMINI_MODEL` in `.env` names another model. To ask another provider, make another `model`:
https://ai.pydantic.dev/models/ has them, and requirements.txt the extra that installs one.
"""

from __future__ import annotations

import os
from functools import cache

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
from pydantic_ai.providers.google import GoogleProvider

from functions.agents import GEMINI_API_KEY
from functions.agents.demo_tools import charge, open_ticket, refund, slow_query
from functions.pydantic_ai import Steps, durable
from functions.secrets import secret
from functions.turns.program import Agent, Budget

INSTRUCTIONS = """\
You are the support agent of a small shop. Look up an order before you say anything about it. Charge
or refund only what the customer asks for; amounts are in cents. A person approves refunds. If a
call is in doubt, say so, and do not repeat it.
"""

BUDGET = Budget(model_steps=20, tool_calls=50, tokens=500_000, seconds=900)


@cache
def agent() -> Agent:
    """The agent: one for all turns, which share its connections to the model.

    Raises NotConfigured when the deployment has no key.
    """
    model = GoogleModel(
        os.environ.get("GEMINI_MODEL") or "gemini-2.5-flash",
        provider=GoogleProvider(api_key=secret(GEMINI_API_KEY)),
        # Seconds of silence: between two pieces of a response, and before its first one.
        settings=GoogleModelSettings(timeout=60, first_event_timeout=120),
    )
    asked = PydanticAgent(
        model,
        name="gemini",
        instructions=INSTRUCTIONS,
        toolsets=[Steps(slow_query, open_ticket, charge, refund)],
    )
    return durable(asked, version="gemini-1", budget=BUDGET)
