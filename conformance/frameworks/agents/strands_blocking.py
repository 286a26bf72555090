"""The scripted agent in Strands' blocking API: each call runs in its own event loop."""

from typing import Any

from conformance.frameworks.agents.strands import prompt_of
from conformance.frameworks.talks import Talk
from strands import Agent
from strands.models import Model

WRAPPER = "strands"
PACKAGES = ("strands-agents",)
CANNOT: dict[str, str] = {}


def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One agent, which keeps the history; it always streams."""
    agent = Agent(model=llm, tools=tools, system_prompt=talk.system, callback_handler=None)
    return [str(agent(prompt_of(said))).strip() for said in talk.says]
