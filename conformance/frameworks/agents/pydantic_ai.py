"""The scripted agent in Pydantic AI."""

from collections.abc import Sequence
from typing import Any

from conformance.frameworks.talks import Said, Talk
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.models import Model

WRAPPER = "pydantic_ai"
PACKAGES = ("pydantic-ai-slim",)
CANNOT: dict[str, str] = {}


async def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One run per user message; the framework's messages carry the history."""
    agent = Agent(llm, system_prompt=talk.system, tools=tools)
    history: list[ModelMessage] = []
    answers = []
    for said in talk.says:
        if talk.stream:
            async with agent.run_stream(prompt_of(said), message_history=history) as result:
                answers.append(await result.get_output())
        else:
            result = await agent.run(prompt_of(said), message_history=history)
            answers.append(result.output)
        history = result.all_messages()
    return answers


def prompt_of(said: Said) -> str | Sequence[UserContent]:
    return said.text if said.image_url is None else [said.text, BinaryContent.from_data_uri(said.image_url)]
