"""Clients for the OpenAI SDK: where requests go, and how much of an answer is read."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest
from openai import APIStatusError, AsyncOpenAI, OpenAI

from fakes.openai_replies import Refuse
from fakes.openai_server import OpenAIServer
from fakes.proxy import RecordingProxy
from nat.capture.http import CapturingAsyncClient, CapturingClient
from nat.capture.library import httpx
from nat.capture.sdk import SDKAsyncClient, SDKClient
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType

MESSAGES = [{"role": "user", "content": "a secret"}]
BODY = {"model": "m", "messages": MESSAGES}
URL = "http://server.example/v1/chat/completions"


@pytest.fixture
def steps() -> list[IntermediateStepPayload]:
    return []


@pytest.fixture
def tap(steps) -> Tap:
    return Tap(steps.append)


def errors(steps: list[IntermediateStepPayload]) -> list[str]:
    return [s.data.payload["error"] for s in steps if s.event_type is IntermediateStepType.SPAN_END]


async def chat(http, url: str) -> None:
    async with AsyncOpenAI(base_url=url, api_key="k", http_client=http, max_retries=1) as client:
        await client.chat.completions.create(model="m", messages=MESSAGES)


def blocking_chat(http, url: str) -> None:
    with OpenAI(base_url=url, api_key="k", http_client=http, max_retries=1) as client:
        client.chat.completions.create(model="m", messages=MESSAGES)


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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_forwards_nothing_and_says_so(steps, tap, status):
    """A server cannot send a prompt and a key to another one; the error says where it wanted to, without a query."""
    async with OpenAIServer() as thief:
        moved = Refuse(status, "", headers={"location": f"{thief.base_url}/chat/completions?token=hidden"})
        async with OpenAIServer([moved] * 2) as server:
            with pytest.raises(APIStatusError, match="set base_url to the server that you mean") as error:
                await chat(CapturingAsyncClient(tap), server.base_url)
            with pytest.raises(APIStatusError, match="set base_url to the server that you mean"):
                await asyncio.to_thread(blocking_chat, CapturingClient(tap), server.base_url)
    assert "hidden" not in str(error.value)
    assert thief.requests == []
    assert len(server.requests) == 2, "it is not retried"
    assert len(errors(steps)) == 2
    assert all("sends this request on to http://127.0.0.1, with" in error for error in errors(steps))


async def test_no_request_goes_to_a_proxy_of_the_environment(tap, monkeypatch):
    """Only the YAML names a proxy."""
    async with OpenAIServer() as server, RecordingProxy(monkeypatch) as proxy:
        await chat(CapturingAsyncClient(tap), server.base_url)
        await chat(SDKAsyncClient(), server.base_url)
        await asyncio.to_thread(blocking_chat, CapturingClient(tap), server.base_url)
        assert proxy.asked == []
        with pytest.raises(APIStatusError, match="502"):
            await chat(CapturingAsyncClient(tap, proxy=proxy.base_url), server.base_url)
        assert f"POST {server.base_url}/chat/completions" in proxy.asked
    assert len(server.requests) == 3


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"data: x"


def blocking_endless() -> Iterator[bytes]:
    while True:
        yield b"data: x"


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_endless_answer_is_not_read_to_its_end(steps, tap, status, stream):
    """What a server may send is bounded; the call's failure names the bound."""
    awaited = httpx.MockTransport(lambda _request: httpx.Response(status, content=endless()))
    blocking = httpx.MockTransport(lambda _request: httpx.Response(status, content=blocking_endless()))
    async with CapturingAsyncClient(tap, most=3000, transport=awaited) as client:
        request = client.build_request("POST", URL, json=BODY)
        with pytest.raises(httpx.RemoteProtocolError, match="larger than 3000 bytes"):
            await (await client.send(request, stream=stream)).aread()
    with (
        CapturingClient(tap, most=3000, transport=blocking) as client,
        pytest.raises(httpx.RemoteProtocolError, match="larger than 3000 bytes"),
    ):
        client.send(client.build_request("POST", URL, json=BODY), stream=stream).read()
    assert len(errors(steps)) == 2
    assert all("larger than 3000 bytes" in error for error in errors(steps))


@pytest.mark.parametrize("charset", ["zlib", "hex", "undefined"])
async def test_a_refusal_is_utf_8_whatever_it_says(charset):
    """A codec that decompresses, or is for no text, is not used; the SDK reports the status."""
    headers, body = {"Content-Type": f"text/plain; charset={charset}"}, zlib.compress(b"x" * 10**6)
    transport = httpx.MockTransport(lambda _request: httpx.Response(400, content=body, headers=headers))
    with pytest.raises(APIStatusError) as error:
        await chat(SDKAsyncClient(transport=transport), "http://server.example/v1")
    assert error.value.response.text == body.decode(errors="replace")
    with pytest.raises(APIStatusError):
        await asyncio.to_thread(blocking_chat, SDKClient(transport=transport), "http://server.example/v1")
