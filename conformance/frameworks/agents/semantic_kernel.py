"""The scripted agent in Semantic Kernel."""

from typing import Any

from conformance.frameworks.talks import Said, Talk
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents import AuthorRole, ChatMessageContent, ImageContent, TextContent
from semantic_kernel.functions import KernelPlugin

WRAPPER = "semantic_kernel"
PACKAGES = ("semantic-kernel",)
CANNOT: dict[str, str] = {}


async def talk(llm: ChatCompletionClientBase, tools: list[Any], talk: Talk) -> list[str]:
    """One invocation per user message; the thread keeps the history."""
    plugins = [KernelPlugin(name="tools", functions=tools)] if tools else []
    agent = ChatCompletionAgent(service=llm, name="assistant", instructions=talk.system, plugins=plugins)
    thread = ChatHistoryAgentThread()
    return [await _answer(agent, thread, _message(said), stream=talk.stream) for said in talk.says]


async def _answer(
    agent: ChatCompletionAgent, thread: ChatHistoryAgentThread, message: ChatMessageContent, *, stream: bool
) -> str:
    if not stream:
        return str((await agent.get_response(messages=message, thread=thread)).message)
    return "".join([str(part.message) async for part in agent.invoke_stream(messages=message, thread=thread)])


def _message(said: Said) -> ChatMessageContent:
    items: list[Any] = [TextContent(text=said.text)]
    if said.image_url is not None:
        items.append(ImageContent(data_uri=said.image_url))
    return ChatMessageContent(role=AuthorRole.USER, items=items)
