"""Limits on the size of bodies, alone and together, and on their number of values."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from nat.http.errors import ApiError
from nat.http.limits import (
    MAX_BATCH_VALUES,
    MAX_KEYS,
    MAX_OBJECTS,
    MAX_VALUES,
    HeldBodies,
    check_batch,
    check_request,
    read_body,
)


def test_a_request_may_have_as_many_values_as_a_conversation():
    """The limit does not grow with the size of the body."""
    check_request(b"[{" * (MAX_OBJECTS // 2) + b"," * MAX_VALUES + b" " * 10_000_000)
    for body in (b"[" * (MAX_OBJECTS + 1), b"{" * MAX_OBJECTS + b"[", b"," * (MAX_VALUES + 1)):
        with pytest.raises(ApiError, match="at most"):
            check_request(body)


def test_a_batch_may_have_a_value_per_token():
    """A batch may have millions of values of any kind."""
    for kind in (b"{", b"[", b",", b"{},["):
        most = kind * (MAX_BATCH_VALUES // (len(kind) - kind.count(b"}")))
        check_batch(most)
        with pytest.raises(ApiError, match=f"at most {MAX_BATCH_VALUES}"):
            check_batch(most + b"[" + kind)


def test_the_keys_of_an_object_are_limited():
    """Millions of different keys in one object take seconds to parse, in which nobody else is answered."""
    check_request(b":" * MAX_KEYS)
    with pytest.raises(ApiError, match=f"at most {MAX_KEYS}"):
        check_request(b":" * (MAX_KEYS + 1))
    check_batch(b":" * 4000, max_objects=1000)
    with pytest.raises(ApiError, match="4001 colons; at most 4000"):
        check_batch(b":" * 4001, max_objects=1000)


@pytest.mark.parametrize("coding", ["gzip", "deflate, br", "identity, gzip"])
async def test_a_compressed_body_is_refused(coding):
    """Some bytes can become gigabytes, so bodies are read as they are, and the error says so."""
    scope = {"type": "http", "headers": [(b"content-encoding", coding.encode())]}
    with pytest.raises(ApiError, match=f"Content-Encoding: {coding}.; send it as it is") as refused:
        await read_body(scope, unread)
    assert refused.value.status == 415


async def unread():
    raise AssertionError("nothing is read of it")


def served(told, answering):
    async def length(request):
        try:
            size = len(await request.body())
        except ClientDisconnect:
            told.put_nowait("gone")
            return PlainTextResponse("")
        told.put_nowait("read")
        await answering.wait()
        return PlainTextResponse(str(size))

    app = Starlette()
    app.add_route("/length", length, methods=["POST"])
    transport = httpx.ASGITransport(HeldBodies(app, max_bytes=1000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_a_body_beyond_the_total_is_refused_until_others_are_answered():
    """Bodies within their own limit can exceed the total; to the application, the refused client disconnected."""
    told, answering = asyncio.Queue(), asyncio.Event()
    async with served(told, answering) as client:
        first = asyncio.create_task(client.post("/length", content=b"x" * 600))
        assert await told.get() == "read"
        second = await client.post("/length", content=b"x" * 600)
        assert (second.status_code, await told.get()) == (503, "gone")
        assert "1000 bytes" in second.json()["error"]["message"]
        assert second.headers["retry-after"] == "1"
        answering.set()
        assert (await first).text == "600"
        assert (await client.post("/length", content=b"x" * 1000)).text == "1000"
        assert (await client.post("/length", content=b"x" * 1001)).status_code == 503
