"""The agent this package serves. Edit here: return your own `Agent`.

Called once in a container, when its first turn starts; import what the agent needs inside.
"""

from functions.turns.program import Agent


def agent() -> Agent:
    """The agent of every new turn."""
    from functions.agents import demo

    return demo.AGENT
