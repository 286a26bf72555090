"""The scripted agent in AutoGen."""

from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage, TextMessage
from autogen_core import Image
from autogen_core.models import ChatCompletionClient
from conformance.frameworks.talks import Said, Talk

WRAPPER = "autogen"
PACKAGES = ("autogen-agentchat", "autogen-ext")
CANNOT: dict[str, str] = {}


async def talk(llm: ChatCompletionClient, tools: list[Any], talk: Talk) -> list[str]:
    """One task per user message; the agent keeps the history in its model context."""
    agent = AssistantAgent(
        "assistant",
        llm,
        tools=tools,
        system_message=talk.system,
        max_tool_iterations=5,
        model_client_stream=talk.stream,
    )
    return [await _answer(agent, _message(said), stream=talk.stream) for said in talk.says]


async def _answer(agent: AssistantAgent, message: BaseChatMessage, *, stream: bool) -> str:
    if not stream:
        return _last(await agent.run(task=message))
    *_, result = [event async for event in agent.run_stream(task=message)]
    assert isinstance(result, TaskResult)
    return _last(result)


def _last(result: TaskResult) -> str:
    last = result.messages[-1]
    assert isinstance(last, BaseChatMessage)
    return last.to_model_text()


def _message(said: Said) -> BaseChatMessage:
    if said.image_url is None:
        return TextMessage(content=said.text, source="user")
    return MultiModalMessage(content=[said.text, Image.from_uri(said.image_url)], source="user")
