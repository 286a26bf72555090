"""Clients for the OpenAI SDK."""

import asyncio

import pytest

from fakes.openai_server import OpenAIServer
from nat.capture.sdk import SDKAsyncClient

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("turns", range(24))
async def test_a_client_that_is_closed_leaves_no_connection(turns):
    """A task that an agent has left behind may be connecting then: its call fails, and its connection is closed."""
    async with OpenAIServer() as server:
        http = SDKAsyncClient()
        call = asyncio.create_task(http.post(f"{server.base_url}/chat/completions", json=BODY))
        for _ in range(turns):
            await asyncio.sleep(0)
        await http.aclose()
        await asyncio.wait([call])
        assert call.exception() is not None or call.result().is_success
        await asyncio.wait_for(asyncio.gather(*server._connections), 10)
