"""The scripted agent in Pydantic AI's blocking API: each run uses its thread's event loop."""

from typing import Any

from conformance.frameworks.agents.pydantic_ai import prompt_of
from conformance.frameworks.talks import Talk
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

WRAPPER = "pydantic_ai"
PACKAGES = ("pydantic-ai-slim",)
CANNOT: dict[str, str] = {}


def talk(llm: Model, tools: list[Any], talk: Talk) -> list[str]:
    """One run per user message; the framework's messages carry the history."""
    agent = Agent(llm, system_prompt=talk.system, tools=tools)
    history: list[ModelMessage] = []
    answers = []
    for said in talk.says:
        if talk.stream:
            streamed = agent.run_stream_sync(prompt_of(said), message_history=history)
            answers.append(streamed.get_output())
            history = streamed.all_messages()
        else:
            result = agent.run_sync(prompt_of(said), message_history=history)
            answers.append(result.output)
            history = result.all_messages()
    return answers
