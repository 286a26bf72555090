"""The scripted agent in Strands' blocking API: each call runs in its own event loop."""

from typing import Any

from conformance.frameworks.talks import Said, Talk
from strands import Agent
from strands.models import Model

WRAPPER = "strands"
PACKAGES = ("strands-agents",)
CANNOT: dict[str, str] = {}


def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One agent, which keeps the history; it always streams."""
    agent = Agent(model=llm, tools=tools, system_prompt=talk.system, callback_handler=None)
    return [str(agent(_prompt(said))).strip() for said in talk.says]


def _prompt(said: Said) -> Any:
    """The user's message; Strands takes an image as bytes."""
    if said.image_url is None:
        return said.text
    return [{"text": said.text}, {"image": {"format": "png", "source": {"bytes": said.picture}}}]
