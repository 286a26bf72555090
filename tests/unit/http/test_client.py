"""Clients of other servers under a proxy of the environment: loopback is kept off it, other hosts go through it."""

import asyncio
from contextlib import suppress

import httpx
import pytest
from openai import APIError

from fakes.openai_server import OpenAIServer
from fakes.proxy import RecordingProxy
from nat.errors import NatError
from nat.http.client import async_client, bearer, blocking_client
from nat.http.errors import ApiError
from nat.http.service import ServiceClient
from nat.plugins.llms.client import open_client, open_sync_client, open_upstream
from nat.plugins.llms.openai import OpenAIModelConfig

PATH, MESSAGES = "/chat/completions", [{"role": "user", "content": "a secret"}]
BODY = {"model": "m", "messages": MESSAGES}


async def by_httpx(url):
    async with async_client(headers=bearer("k")) as client:
        await client.post(url + PATH, json=BODY)


async def by_blocking_httpx(url):
    def post():
        with blocking_client(headers=bearer("k")) as client:
            client.post(url + PATH, json=BODY)

    await asyncio.to_thread(post)


async def by_service(url):
    async with ServiceClient(url, "k", name="the service") as client:
        await client.send("POST", url + PATH, json=BODY)


def config(url):
    return OpenAIModelConfig(model_name="m", base_url=url, api_key="k", max_retries=0)


async def by_sdk(url):
    async with open_client(config(url), llm_name="student") as client:
        await client.chat.completions.create(**BODY)


async def by_blocking_sdk(url):
    def chat():
        with open_sync_client(config(url), llm_name="student") as client:
            client.chat.completions.create(**BODY)

    await asyncio.to_thread(chat)


async def by_sdk_of_another_loop(url):
    async with open_client(config(url), llm_name="student") as client:
        await asyncio.to_thread(asyncio.run, client.chat.completions.create(**BODY))


async def by_gateway(url):
    async with open_upstream(config(url), llm_name="student") as upstream:
        await upstream.complete(PATH, BODY)


CLIENTS = [by_httpx, by_blocking_httpx, by_service, by_sdk, by_blocking_sdk, by_sdk_of_another_loop, by_gateway]


@pytest.mark.parametrize("call", CLIENTS)
async def test_a_key_for_loopback_reaches_no_proxy(call, monkeypatch):
    """Nor does the prompt; the server gets both."""
    async with OpenAIServer() as server, RecordingProxy(monkeypatch) as proxy:
        await call(server.base_url)
        await call(server.base_url.replace("127.0.0.1", "localhost"))
        with suppress(httpx.HTTPError, APIError, ApiError, NatError):
            await call("http://[::1]:9/v1")
        assert proxy.asked == []
    assert len(server.requests) == 2


@pytest.mark.parametrize("call", CLIENTS)
async def test_other_hosts_are_reached_by_the_users_proxy(call, monkeypatch):
    """As with any other program."""
    async with RecordingProxy(monkeypatch) as proxy:
        for url in ("http://nobody.invalid/v1", "https://nobody.invalid/v1"):
            with suppress(httpx.HTTPError, APIError, ApiError, NatError):
                await call(url)
    assert proxy.asked == [f"POST http://nobody.invalid/v1{PATH}", "CONNECT nobody.invalid:443"]
