"""Calls wait for a server that is away, on real connections."""

import asyncio
import logging
import time
from contextlib import contextmanager
from typing import Any

import pytest

from fakes.openai_replies import Refuse, Say
from fakes.openai_server import OpenAIServer
from fakes.processes import free_port, refused_port
from nat.capture.context import deadline, waited_for
from nat.capture.http import CapturingAsyncClient
from nat.capture.tap import Tap
from nat.capture.transport import httpx, retry_after
from nat.errors import BackendUnreachable

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
BUSY = Refuse(503, "the model is being loaded")
QUICK = 0.01
"""Seconds of the first pause."""


@contextmanager
def waiting(longest: float = 20.0, first_pause: float = QUICK):
    """Wait with short pauses; the errors of those who gave up."""
    lost: list[BackendUnreachable] = []
    with waited_for(longest, lost.append, first_pause=first_pause):
        yield lost


async def until(condition) -> None:
    """Wait until it is true."""
    while not condition():  # noqa: ASYNC110 - it becomes true in a thread, or by the clock
        await asyncio.sleep(0.01)


@pytest.fixture
def steps() -> list[Any]:
    return []


@pytest.fixture
def tap(steps) -> Tap:
    return Tap(steps.append, llm_name="judge")


async def posted(client, server, text: str = "hi"):
    body = {**BODY, "messages": [{"role": "user", "content": text}]}
    return await client.post(f"{server.base_url}/chat/completions", json=body)


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_a_call_waits_until_the_server_has_capacity(tap, steps, status, caplog):
    """It is one call to whoever made it; the time of the outage is known, and a short one is not worth a word."""
    script = [Refuse(status), Refuse(status), Refuse(status), Say("yes")]
    async with OpenAIServer(script) as server, CapturingAsyncClient(tap) as client:
        with waiting():
            response = await posted(client, server)
    assert response.json()["choices"][0]["message"]["content"] == "yes"
    assert len(server.requests) == 4
    assert [
        step.data.payload for step in steps if step.data and step.data.payload and "error" in step.data.payload
    ] == []
    assert not caplog.records


async def test_a_refused_connection_is_waited_for(tap, caplog):
    """A server that is started anew, on the same port; it is told once that it is away, and once that it answers."""
    port = free_port()

    async def start() -> asyncio.Server:
        await asyncio.sleep(0.3)
        return await asyncio.start_server(answer, "127.0.0.1", port)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with CapturingAsyncClient(tap) as client:
        with waiting(0.8):
            starting = asyncio.create_task(start())
            calls = [client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=BODY) for _ in range(5)]
            responses = await asyncio.gather(*calls)
            async with await starting:
                pass
    assert {response.status_code for response in responses} == {404}
    away, back = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "the server of LLM 'judge' is away (ConnectError: " in away
    assert "(eval.general.outage_timeout)" in away
    assert "answers again after" in back


@pytest.mark.parametrize("status", [500, 504])
async def test_a_request_that_fails_alone_is_no_outage(tap, status):
    """A prompt on which the server always fails ends its own call, as often as it is repeated."""

    def script(request):
        return Refuse(status) if request.last_text == "poison" else Say("yes")

    async with OpenAIServer(script) as server, CapturingAsyncClient(tap) as client:
        with waiting():
            assert (await posted(client, server, "poison")).status_code == status
            assert (await posted(client, server)).status_code == 200


async def test_the_wait_is_bounded_and_given_up_once(tap):
    """The error says what was seen, for how long, and what to do; the call raises what came last."""
    with refused_port() as port:
        async with CapturingAsyncClient(tap) as client:
            with waiting(0.3) as lost, pytest.raises(httpx.ConnectError):
                await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=BODY)
    [error] = lost
    assert "the server of LLM 'judge' has been away for 0 s (ConnectError" in error.message
    assert "nat finetune --resume" in str(error.hint)
    assert "eval.general.outage_timeout" in str(error.hint)


async def test_a_server_that_limits_rates_ends_no_run(tap):
    """While it answers others, one that it never answers fails by itself after the bound."""

    def script(request):
        return Refuse(429) if request.last_text == "starved" else Say("yes")

    async with OpenAIServer(script) as server, CapturingAsyncClient(tap) as client:
        with waiting(0.3) as lost:
            starved = asyncio.create_task(posted(client, server, "starved"))
            while not starved.done():
                assert (await posted(client, server)).status_code == 200
                await asyncio.sleep(0.02)
            assert starved.result().status_code == 429
            assert not lost


async def test_time_limits_stand_still_while_a_server_is_away(tap):
    """The limit counts the rest of the time, before and after."""
    async with OpenAIServer([BUSY] * 4 + [Say("yes")]) as server, CapturingAsyncClient(tap) as client:
        with waiting(first_pause=0.3):
            async with deadline(10) as outer, deadline(0.4) as limit:
                begun = time.monotonic()
                assert (await posted(client, server)).status_code == 200
                assert time.monotonic() - begun > 0.4
                assert not limit.is_over
                assert not outer.is_over
            with pytest.raises(TimeoutError):
                async with deadline(0.05) as limit:
                    await asyncio.sleep(5)
            assert limit.expired


async def test_a_cancellation_ends_a_request_at_once(tap):
    """Also one that is under way, and not between two of them."""
    arrived = asyncio.Event()

    async def script(_request):
        arrived.set()
        await asyncio.sleep(1)
        return Say("late")

    async with OpenAIServer(script) as server, CapturingAsyncClient(tap) as client:
        with waiting():
            call = asyncio.create_task(posted(client, server))
            await arrived.wait()
            call.cancel()
            await asyncio.wait({call})
    assert call.cancelled()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_a_server_may_say_how_long(headers, seconds):
    """In seconds or milliseconds; anything else is no request."""
    assert retry_after(httpx.Response(503, headers=headers)) == seconds
