"""Clients of other servers: no proxy of the environment, no redirect, bounded and uncompressed answers."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from fakes.proxy import RecordingProxy
from nat.http.client import DirectAsyncClient, DirectClient

URL = "http://server.example/"


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1000


def endless_blocking() -> Iterator[bytes]:
    while True:
        yield b"x" * 1000


def answering(**answer: object) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _request: httpx.Response(200, **answer))


async def test_no_request_goes_to_a_proxy_of_the_environment(monkeypatch):
    """A proxy that the environment names gets no key, also for servers that are not on this machine."""

    def blocking() -> None:
        with DirectClient(timeout=2) as client:
            client.get("http://nobody.invalid/health")

    async with RecordingProxy(monkeypatch) as proxy:
        async with DirectAsyncClient(headers={"Authorization": "Bearer key"}, timeout=2) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("http://nobody.invalid/health")
            await client.get(f"{proxy.base_url}/health")
        with pytest.raises(httpx.ConnectError):
            await asyncio.to_thread(blocking)
    assert proxy.asked == ["GET /health"]  # as a server of its own


async def test_no_redirect_is_followed():
    """What a request carries goes to no other address; the status is the caller's to report."""
    asked = []

    def redirect(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(307, headers={"Location": "http://thief.example/"})

    async with DirectAsyncClient(transport=httpx.MockTransport(redirect)) as client:
        assert (await client.post(URL, json={})).status_code == 307
    assert asked == ["server.example"]


async def test_an_answer_within_the_bound_is_read():
    """The bound counts bytes and is inclusive."""
    async with DirectAsyncClient(most=4, transport=answering(content=pieces(b"four"))) as client:
        assert (await client.get(URL)).content == b"four"


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for piece in chunks:
        yield piece


async def test_reading_stops_at_the_bound():
    """An endless answer is an error that names the bound, read at once or as a stream."""
    async with DirectAsyncClient(
        most=2500, transport=httpx.MockTransport(lambda _: httpx.Response(200, content=endless()))
    ) as client:
        with pytest.raises(httpx.RemoteProtocolError, match="larger than 2500 bytes"):
            await client.get(URL)
        with pytest.raises(httpx.RemoteProtocolError, match="larger than 2500 bytes"):
            await (await client.send(client.build_request("GET", URL), stream=True)).aread()


def test_blocking_reading_stops_at_the_bound():
    """The same for blocking code."""
    client = DirectClient(most=2500, transport=answering(content=endless_blocking()))
    with client, pytest.raises(httpx.RemoteProtocolError, match="larger than 2500 bytes"):
        client.get(URL)


async def test_a_compressed_answer_is_refused():
    """Compressed bytes say nothing about the size; requests forbid them."""
    content = gzip.compress(b"x" * 10**6)
    transport = answering(content=pieces(content), headers={"Content-Encoding": "gzip"})
    async with DirectAsyncClient(transport=transport, headers={"Accept-Encoding": "gzip"}) as client:
        request = client.build_request("GET", URL)
        with pytest.raises(httpx.RemoteProtocolError, match=r"compressed \(gzip\)"):
            await client.send(request)
    assert request.headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("charset", ["zlib", "hex", "undefined", "\0"])
async def test_an_answer_is_utf_8_whatever_it_says(charset):
    """A codec that decompresses, or is for no text, is not used."""
    said, body = {"Content-Type": f"text/plain; charset={charset}"}, zlib.compress(b"x" * 10**6)
    async with DirectAsyncClient(transport=answering(content=body, headers=said)) as client:
        assert (await client.get(URL)).text == body.decode(errors="replace")
    with DirectClient(transport=answering(content=body, headers=said)) as client:
        assert client.get(URL).text == body.decode(errors="replace")
