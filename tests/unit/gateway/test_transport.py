"""HTTP/1.1 over a socket, as model servers use it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nat.capture.library import httpx
from nat.gateway.transport import PlainTransport

OK = b"HTTP/1.1 200 OK\r\n"


class Line:
    """A client and what its server received."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.connections = 0
        self.heads: list[bytes] = []


@asynccontextmanager
async def line(*pieces: bytes, close_after: int | None = None) -> AsyncIterator[Line]:
    """A server that answers each request with these pieces, and closes a connection after some requests."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        known.connections += 1
        answered = 0
        while answered != close_after and (head := await _head(reader)):
            known.heads.append(head)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            answered += 1
        writer.close()

    serving: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, httpx.AsyncClient(transport=PlainTransport(), base_url=f"http://127.0.0.1:{port}") as client:
        known = Line(client)
        yield known
        await client.aclose()
        await asyncio.gather(*serving, return_exceptions=True)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def test_a_connection_is_reused():
    """Status, headers and body arrive; the next request uses the same connection."""
    async with line(OK + b"content-type: text/x\r\ncontent-length: 5\r\n\r\nhello") as known:
        for _ in range(3):
            answer = await known.client.get("/a?b=c", headers={"x-mine": "1"})
            assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, "hello", "text/x")
    assert known.connections == 1
    assert known.heads[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert b"x-mine: 1\r\n" in known.heads[0].lower()


async def test_chunks_come_as_they_are_sent():
    """The first part of a body can be read while the server holds the rest."""
    async with line(OK + b"transfer-encoding: chunked\r\n\r\n", b"2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n") as known:
        async with known.client.stream("GET", "/") as answer:
            text = b"".join([piece async for piece in answer.aiter_raw()])
        assert text == b"hello"
        await known.client.get("/")
    assert known.connections == 1


async def test_a_body_without_length_ends_with_its_connection():
    """HTTP/1.0 servers answer so; the connection is not used again."""
    async with line(OK + b"\r\n", b"hel", b"lo", close_after=1) as known:
        assert [(await known.client.get("/")).text for _ in range(2)] == ["hello", "hello"]
    assert known.connections == 2


async def test_a_kept_connection_that_was_closed_is_replaced():
    """The request is sent again over a new connection, since the server cannot have received it."""
    async with line(OK + b"content-length: 2\r\n\r\nok", close_after=1) as known:
        for _ in range(3):
            assert (await known.client.get("/")).text == "ok"
            await asyncio.sleep(0.01)
    assert known.connections == 3


async def test_interim_answers_are_skipped():
    """Interim responses such as 103 are skipped."""
    async with line(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", OK + b"content-length: 2\r\n\r\nok") as known:
        answer = await known.client.get("/")
    assert (answer.status_code, answer.text) == (200, "ok")
    assert "link" not in answer.headers


@pytest.mark.parametrize(
    "pieces",
    [
        (b"nonsense\r\n\r\n",),
        (OK,),
        (OK + b"content-length: 9\r\n\r\n", b"hello"),
        (OK + b"transfer-encoding: chunked\r\n\r\n", b"5\r\nhel"),
        (OK + b"transfer-encoding: chunked\r\n\r\n", b"nonsense"),
        (),
    ],
)
async def test_an_invalid_response_is_an_error(pieces):
    """Malformed or truncated HTTP is never taken for a response."""
    async with line(*pieces, close_after=1) as known:
        with pytest.raises(httpx.RemoteProtocolError):
            await known.client.get("/")


async def test_a_refused_connection_is_an_error():
    """A refused connection raises the same error as httpx's own transport."""
    async with line() as known:
        url = str(known.client.base_url)
    async with httpx.AsyncClient(transport=PlainTransport()) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(url)


async def test_an_unread_answer_closes_its_connection():
    """The rest of an answer must not be read as the start of the next one."""
    async with line(OK + b"content-length: 1000\r\n\r\n" + b"x" * 500) as known:
        for _ in range(2):
            async with known.client.stream("GET", "/") as answer:
                async for _ in answer.aiter_raw():
                    break
    assert known.connections == 2


async def test_a_slow_reader_slows_its_server_down():
    """The buffer is limited, and nothing is lost."""
    size = 8 * 2**20
    body = [b"x" * 2**16] * (size // 2**16)
    async with (
        line(OK + b"content-length: %d\r\n\r\n" % size, *body) as known,
        known.client.stream("GET", "/") as answer,
    ):
        await asyncio.sleep(0.2)
        pieces = [piece async for piece in answer.aiter_raw()]
    assert sum(map(len, pieces)) == size
    assert len(pieces[0]) < 4 * 2**20


@pytest.mark.parametrize("begun", [OK, OK + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"])
async def test_endless_headers_are_an_error(begun):
    """A server cannot fill the memory with headers or trailers, which no bound of bodies counts."""
    async with line(begun, *[b"x: " + b"y" * 2**16 + b"\r\n"] * 20) as known:
        with pytest.raises(httpx.RemoteProtocolError, match="more than 1048576 bytes of headers"):
            await known.client.get("/")


async def test_a_header_value_cannot_add_a_header():
    """Line breaks in a value are refused."""
    async with line() as known:
        with pytest.raises(httpx.LocalProtocolError):
            await known.client.get("/", headers={"x": "a\r\ny: b"})
    assert known.heads == []
