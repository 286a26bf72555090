"""The scripted agent in Strands' asynchronous API."""

from typing import Any

from conformance.frameworks.talks import Said, Talk
from strands import Agent
from strands.models import Model

WRAPPER = "strands"
PACKAGES = ("strands-agents",)
CANNOT: dict[str, str] = {}


async def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One agent, which keeps the history itself."""
    agent = Agent(model=llm, tools=tools, system_prompt=talk.system, callback_handler=None)
    answers = []
    for said in talk.says:
        if talk.stream:
            async for event in agent.stream_async(prompt_of(said)):
                result = event.get("result")
        else:
            result = await agent.invoke_async(prompt_of(said))
        answers.append(str(result).strip())
    return answers


def prompt_of(said: Said) -> Any:
    """The user's message; Strands takes an image as bytes."""
    if said.image_url is None:
        return said.text
    return [{"text": said.text}, {"image": {"format": "png", "source": {"bytes": said.picture}}}]
