"""Minimal agents, one per official client: ask, call tools until none is called, answer.

Each uses a client of its SDK, blocking or not, streamed or not, and returns the answer's text.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

SYSTEM = "Be brief."
QUESTION = "What is there?"
SCHEMA = {"type": "object", "properties": {"at": {}}}

Agent = Callable[[str, str], Awaitable[str]]
"""An agent that takes the gateway's URL and a key."""


def seen(arguments: dict[str, Any]) -> str:
    """The result of the tool `look`."""
    return f"a {arguments['at']}"


async def _messages(create: Callable[..., Awaitable[Any]]) -> str:
    tools = [{"name": "look", "description": "See.", "input_schema": SCHEMA}]
    history: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    while True:
        answer = await create(model="claude-x", max_tokens=99, system=SYSTEM, tools=tools, messages=history)
        if answer.stop_reason != "tool_use":
            return "".join(block.text for block in answer.content)
        calls = [block for block in answer.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": seen(call.input)} for call in calls]
        history += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]


async def _responses(create: Callable[..., Awaitable[Any]], *, by_id: bool = False) -> str:
    tools = [{"type": "function", "name": "look", "description": "See.", "parameters": SCHEMA, "strict": False}]
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    new, previous = history, None
    while True:
        more = {"input": new, "previous_response_id": previous} if by_id else {"input": history}
        answer = await create(model="gpt-x", instructions=SYSTEM, tools=tools, **more)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return str(answer.output_text)
        new = [
            {"type": "function_call_output", "call_id": c.call_id, "output": seen(json.loads(c.arguments))}
            for c in calls
        ]
        history = [*history, *_sent_back(answer.output), *new]
        previous = answer.id


def _sent_back(output: list[Any]) -> list[dict[str, Any]]:
    return [item.to_dict() for item in output]


async def messages_blocking(url: str, key: str) -> str:
    with Anthropic(base_url=url, api_key=key, max_retries=0) as client:
        return await _messages(lambda **ask: asyncio.to_thread(lambda: client.messages.create(**ask)))


async def messages_blocking_streamed(url: str, key: str) -> str:
    def create(**ask: Any) -> Any:
        with client.messages.stream(**ask) as stream:
            return stream.get_final_message()

    with Anthropic(base_url=url, api_key=key, max_retries=0) as client:
        return await _messages(lambda **ask: asyncio.to_thread(lambda: create(**ask)))


async def messages_async(url: str, key: str) -> str:
    async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        return await _messages(client.messages.create)


async def messages_async_streamed(url: str, key: str) -> str:
    async def create(**ask: Any) -> Any:
        async with client.messages.stream(**ask) as stream:
            return await stream.get_final_message()

    async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        return await _messages(create)


async def responses_blocking(url: str, key: str) -> str:
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        return await _responses(lambda **ask: asyncio.to_thread(lambda: client.responses.create(**ask)))


async def responses_blocking_streamed(url: str, key: str) -> str:
    def create(**ask: Any) -> Any:
        with client.responses.stream(**ask) as stream:
            return stream.get_final_response()

    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        return await _responses(lambda **ask: asyncio.to_thread(lambda: create(**ask)))


async def responses_async(url: str, key: str) -> str:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        return await _responses(client.responses.create)


async def responses_async_by_id(url: str, key: str) -> str:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        return await _responses(client.responses.create, by_id=True)


async def responses_async_streamed(url: str, key: str) -> str:
    async def create(**ask: Any) -> Any:
        async with client.responses.stream(**ask) as stream:
            return await stream.get_final_response()

    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        return await _responses(create)


AGENTS: list[Agent] = [
    messages_blocking,
    messages_blocking_streamed,
    messages_async,
    messages_async_streamed,
    responses_blocking,
    responses_blocking_streamed,
    responses_async,
    responses_async_by_id,
    responses_async_streamed,
]
