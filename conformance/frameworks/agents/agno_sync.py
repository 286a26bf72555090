"""The scripted agent in Agno's blocking API."""

from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.media import Image
from agno.models.base import Model
from conformance.frameworks.talks import Said, Talk

WRAPPER = "agno"
PACKAGES = ("agno",)
CANNOT: dict[str, str] = {}


def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One run per user message; the session keeps the history."""
    agent = Agent(
        model=llm,
        tools=[tool.blocking for tool in tools],
        system_message=talk.system,
        db=InMemoryDb(),
        add_history_to_context=True,
        session_id="one",
    )
    return [_answer(agent, said, stream=talk.stream) for said in talk.says]


def _answer(agent: Agent, said: Said, *, stream: bool) -> str:
    images = [] if said.image_url is None else [Image(url=said.image_url)]
    if not stream:
        return str(agent.run(said.text, images=images).content)
    return "".join([str(event.content or "") for event in agent.run(said.text, images=images, stream=True)])
