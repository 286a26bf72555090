"""How much the bodies of all requests may take together."""

import asyncio

import httpx
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from nat.asgi.held_bodies import HeldBodies


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
    transport = httpx.ASGITransport(HeldBodies(app, most_bytes=1000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_who_brings_more_than_there_is_room_for_is_refused_until_others_are_answered():
    """Each is small enough; together they are not. The application takes the refused one for a client that has gone."""
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
