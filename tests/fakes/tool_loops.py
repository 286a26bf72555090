"""Minimal agents, one per kind of official client: ask, call tools until none is called, answer.

Each uses a client of its SDK, blocking or not, streamed or not, and returns the answer's text.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
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
        history = [*history, *(item.to_dict() for item in answer.output), *new]
        previous = answer.id


async def _asked(api: Any, final: str, *, blocking: bool, streamed: bool, ask: dict[str, Any]) -> Any:
    """The whole answer of a client's `messages` or `responses`."""

    def at_once() -> Any:
        with api.stream(**ask) as stream:
            return getattr(stream, final)()

    if blocking:
        return await asyncio.to_thread(at_once if streamed else lambda: api.create(**ask))
    if not streamed:
        return await api.create(**ask)
    async with api.stream(**ask) as stream:
        return await getattr(stream, final)()


async def messages(url: str, key: str, *, blocking: bool, streamed: bool) -> str:
    with Anthropic(base_url=url, api_key=key, max_retries=0) as client:
        async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as another:
            api, how = (client if blocking else another).messages, {"blocking": blocking, "streamed": streamed}
            return await _messages(lambda **ask: _asked(api, "get_final_message", ask=ask, **how))


async def responses(url: str, key: str, *, blocking: bool, streamed: bool, by_id: bool = False) -> str:
    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as another:
            api, how = (client if blocking else another).responses, {"blocking": blocking, "streamed": streamed}
            return await _responses(lambda **ask: _asked(api, "get_final_response", ask=ask, **how), by_id=by_id)


WAYS = [{"blocking": blocking, "streamed": streamed} for blocking in (False, True) for streamed in (False, True)]
AGENTS: list[Agent] = [
    *(partial(agent, **way) for agent in (messages, responses) for way in WAYS),
    partial(responses, by_id=True, **WAYS[0]),
]
