"""Pydantic AI agents as agents of this package: see docs/guides/bring-your-agent.md.

    agent = pydantic_ai.Agent("google:gemini-2.5-flash", name="shop", toolsets=[Steps(refund)])
    AGENT = durable(agent, version="shop-1")

Model requests and tool calls are steps of the turn's ledger. Importing this imports Pydantic AI,
which takes a second: do it where the agent is made, not where the functions are.
"""

import pydantic_ai

from functions.pydantic_ai.agent import durable
from functions.pydantic_ai.tools import Steps, current_call, once

__all__ = ["Steps", "current_call", "durable", "once"]

# Each line of the log is JSON; its greeting is none.
pydantic_ai.BANNER_ENABLED = False
