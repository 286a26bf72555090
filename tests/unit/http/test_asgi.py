"""Bodies of requests: read whole, parsed, and limited."""

import httpx
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse

from nat.http.asgi import BodyLimit
from nat.http.errors import ApiError
from nat.http.starlette import add_error_handlers


async def length(request):
    return PlainTextResponse(str(len(await request.body())))


async def in_pieces(count):
    for _ in range(count):
        yield b" " * 10


async def test_a_body_over_the_limit_is_refused():
    """By its announced size, or by its actual size if none is announced."""
    app = Starlette()
    add_error_handlers(app, lambda error: ApiError(str(error), status=500))
    app.add_route("/", length, methods=["POST"])
    transport = httpx.ASGITransport(BodyLimit(app, max_bytes=100))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.post("/", content=b" " * 100)).text == "100"
        assert (await client.post("/", content=in_pieces(10))).text == "100"
        for content in (b" " * 101, in_pieces(11)):
            answer = await client.post("/", content=content)
            assert (answer.status_code, "100 bytes" in answer.json()["error"]["message"]) == (413, True)
