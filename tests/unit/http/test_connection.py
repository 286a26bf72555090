"""Limits on the time and the number of clients' connections."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, StreamingResponse

from nat.http.guards import Guard, HostNames, KeyCheck
from nat.http.limits import ConnectionLimits
from nat.http.server import Server, bind, port_of

POST = b"POST /length HTTP/1.1\r\nhost: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def application(told):
    async def length(request):
        try:
            return PlainTextResponse(str(len(await request.body())))
        except ClientDisconnect:
            told.append("gone")
            return PlainTextResponse("")

    async def flood(_):
        async def pieces():
            try:
                while True:
                    await asyncio.sleep(0)
                    yield b"x" * 2**16
            finally:
                told.append("stopped")

        return StreamingResponse(pieces())

    async def wait(request):
        while (await request.receive())["type"] != "http.disconnect":
            pass
        told.append("gone")
        return PlainTextResponse("")

    app = Starlette()
    app.add_route("/wait", wait)
    app.add_route("/length", length, methods=["POST"])
    app.add_route("/flood", flood)
    app.add_route("/health", lambda _: PlainTextResponse("fine"))
    return app


@asynccontextmanager
async def served(told=None, *, key=None, **bounds):
    """A function that opens a connection to a server, which may need a key."""
    with bind("127.0.0.1", 0, command="a test") as listener:
        ready = asyncio.Event()
        app = application([] if told is None else told)
        app = app if key is None else Guard(app, KeyCheck(key, "as a bearer token"))
        server = Server(app, ready.set, names=HostNames("127.0.0.1"), limits=ConnectionLimits(**bounds))
        task = asyncio.create_task(server._serve([listener]))
        await ready.wait()
        opened = []

        async def connect():
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            opened.append(writer)
            return reader, writer

        try:
            yield connect
        finally:
            for writer in opened:
                writer.close()
            server.should_exit = True
            await task


async def read_response(reader):
    """Status and body of a response that ends with its connection."""
    head, _, body = (await asyncio.wait_for(reader.read(), 30)).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["message"]


async def healthy(connect):
    reader, writer = await connect()
    writer.write(HEALTH)
    answer = await asyncio.wait_for(reader.readuntil(b"fine"), 30)
    return answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "begun", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-slow: 1\r\n", HEALTH + b"GE"]
)
async def test_slow_headers_end_the_connection(begun):
    """A client that sends nothing, a part of its first or a part of its second request is disconnected."""
    async with served(head_seconds=1 if begun.startswith(HEALTH) else 0.2) as connect:
        reader, writer = await connect()
        writer.write(begun)
        if begun.startswith(HEALTH):
            await reader.readuntil(b"fine")
        assert await read_response(reader) == (408, "the headers of this request did not come in time")


async def test_half_open_connections_are_closed_while_others_are_answered():
    """A hundred half-open connections leave no more memory than one."""
    async with served(head_seconds=2) as connect:
        half_open = [await connect() for _ in range(100)]
        for _, writer in half_open:
            writer.write(b"GET / HTTP/1.1\r\n")
        assert await healthy(connect)
        assert [(await read_response(reader))[0] for reader, _ in half_open] == [408] * 100


async def test_a_slow_body_ends_the_connection():
    """A body that comes byte by byte is too slow; the application learns that the client disconnected."""
    told = []
    async with served(told, body_seconds=0.2) as connect:
        reader, writer = await connect()
        writer.write(POST + b"content-length: 100\r\n\r\n" + b"x" * 10)
        assert await read_response(reader) == (408, "the body of this request did not come in time")
    assert told == ["gone"]


async def test_a_large_body_gets_enough_time():
    """Each piece extends the deadline at the lowest allowed rate."""
    async with served(body_seconds=1, body_rate=250) as connect:
        reader, writer = await connect()
        writer.write(POST + b"content-length: 1000\r\n\r\n")
        for _ in range(4):
            writer.write(b"x" * 250)
            await asyncio.sleep(0.4)
        assert (await reader.readuntil(b"1000")).startswith(b"HTTP/1.1 200")


async def test_headers_are_limited():
    """The size of headers is limited, however many there are and in every request of a connection."""
    async with served(head_bytes=1000) as connect:
        reader, writer = await connect()
        writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 2000)
        assert (await read_response(reader))[0] == 431


@pytest.mark.parametrize("rest", [b"0\r\n" + b"a: b\r\n" * 1000, b"0\r\na: " + b"x" * 5000, b"1;" + b"x" * 5000])
async def test_trailers_and_chunk_extensions_are_limited(rest):
    """Hundreds of megabytes of trailers or chunk extensions would be stored or parsed."""
    async with served(head_bytes=1000) as connect:
        reader, writer = await connect()
        writer.write(POST + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        await healthy(connect)
        for _ in range(2):
            writer.write(rest)
            await healthy(connect)
        assert (await read_response(reader))[0] == 431


async def test_chunks_do_not_count_as_headers():
    """A body may have any number of chunks."""
    async with served(head_bytes=1000) as connect:
        reader, writer = await connect()
        writer.write(POST + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n")
        assert (await reader.readuntil(b"2000")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [b"content-length: 48\r\n", b"transfer-encoding: chunked\r\n"])
async def test_the_body_of_an_upgrade_is_no_request(size):
    """The parser takes a body after `Upgrade` for the next request, which a proxy would not have checked."""
    async with served() as connect:
        reader, writer = await connect()
        writer.write(POST + size + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n" + HEALTH)
        status, message = await read_response(reader)
        assert (status, message.endswith("without the header Upgrade")) == (400, True)
        assert await healthy(connect)


async def test_an_upgrade_without_a_body_is_ignored():
    """A client that would rather speak another protocol gets its answer in this one."""
    async with served() as connect:
        reader, writer = await connect()
        writer.write(HEALTH[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"fine"), 30)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("first", [b"", HEALTH])
async def test_all_requests_of_a_client_end_with_its_connection(first):
    """A request that is answered while the next one waits behind it learns that its client has gone."""
    told = []
    async with served(told) as connect:
        reader, writer = await connect()
        writer.write(first + b"GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n" + HEALTH * 2)
        if first:
            await asyncio.wait_for(reader.readuntil(b"fine"), 30)
        await asyncio.sleep(0.2)
        writer.transport.abort()
    assert told == ["gone"]


async def test_trailers_are_no_headers():
    """Trailers come after the checks, so a second host, key or length among them is ignored."""
    async with served() as connect:
        reader, writer = await connect()
        writer.write(POST + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nhost: evil.example\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")


FLOOD = b"GET /flood HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def test_the_number_of_connections_is_limited():
    """A connection beyond the limit gets a 503; when one closes, there is room again."""
    async with served(connections=3) as connect:
        busy = [await connect() for _ in range(3)]
        for reader, writer in busy:
            writer.write(FLOOD)
            await reader.readuntil(b"x")
        reader, _ = await connect()
        assert (await read_response(reader))[0] == 503
        busy[0][1].transport.abort()
        await asyncio.sleep(0.1)
        assert await healthy(connect)


async def test_idle_connections_give_their_place_to_new_ones():
    """Connections that are kept open without a request keep nobody out; the oldest goes first."""
    async with served(connections=3) as connect:
        idle = [await connect() for _ in range(3)]
        for reader, writer in idle[1:]:
            writer.write(HEALTH)
            await reader.readuntil(b"fine")
        assert await healthy(connect)
        assert await idle[0][0].read() == b""
        idle[2][1].write(HEALTH)
        assert (await idle[2][0].readuntil(b"fine")).startswith(b"HTTP/1.1 200")


WITH_KEY = HEALTH.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer right\r\n\r\n")


async def test_connections_without_a_key_keep_no_place():
    """After a 401 the connection ends; one that showed the key stays open, however many others come."""
    async with served(key="right", connections=10, head_seconds=60) as connect:
        reader, writer = await connect()
        writer.write(WITH_KEY)
        await reader.readuntil(b"fine")
        for _ in range(30):
            refused, stranger = await connect()
            stranger.write(HEALTH)
            assert (await read_response(refused))[0] == 401
        silent = [await connect() for _ in range(30)]
        for _ in range(2):
            writer.write(WITH_KEY)
            assert (await reader.readuntil(b"fine")).startswith(b"HTTP/1.1 200")
        newcomer, writer = await connect()
        writer.write(WITH_KEY)
        assert (await newcomer.readuntil(b"fine")).startswith(b"HTTP/1.1 200")
        assert await silent[0][0].read() == b""


async def test_a_refused_body_is_read_before_the_connection_ends():
    """Otherwise a client that still sends its body would see a broken connection and no 401."""
    async with served(key="right") as connect:
        reader, writer = await connect()
        writer.write(POST + b"content-length: 4000000\r\n\r\n")
        for _ in range(40):
            writer.write(b"x" * 100_000)
            await writer.drain()
        assert (await read_response(reader))[0] == 401


async def test_a_refused_client_is_told_that_its_connection_ends():
    """A pool of connections would send its next request on this one, and lose it."""
    async with served(key="right") as connect:
        reader, writer = await connect()
        writer.write(HEALTH)
        assert b"connection: close\r\n" in await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 15_000 + b"\r\n",
        b"GET /health?" + b"x" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * 100_000 + b"\r\nx\r\n0\r\n\r\n",
        POST + b"transfer-encoding: chunked\r\n\r\n" + (b"1;" + b"x" * 1000 + b"\r\nx\r\n") * 100 + b"0\r\n\r\n",
    ],
)
async def test_the_limits_hold_in_a_single_read(request_bytes):
    """What comes at once is limited like what comes in pieces."""
    async with served() as connect:
        reader, writer = await connect()
        writer.write(request_bytes)
        assert (await read_response(reader))[0] == 431


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        (HEALTH[:10], HEALTH[10:]),
        (POST + b"content-length: 4\r\n\r\nfo", b"ur"),
    ],
)
async def test_the_time_of_a_starved_server_is_not_charged(begun, rest):
    """A loop that is blocked for longer than a limit leaves its clients their time."""
    async with served(head_seconds=0.5, body_seconds=0.5) as connect:
        reader, writer = await connect()
        writer.write(begun)
        await asyncio.sleep(0.1)
        time.sleep(1)  # noqa: ASYNC251 - what the test is about
        for _ in range(5):
            await asyncio.sleep(0)
        writer.write(rest)
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)).startswith(b"HTTP/1.1 200")


async def test_an_unread_response_is_ended():
    """Its work stops, and other clients are answered meanwhile."""
    told = []
    async with served(told, unread_seconds=0.2) as connect:
        _, writer = await connect()
        writer.write(b"GET /flood HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with asyncio.timeout(30):
            while not told:
                assert await healthy(connect)
    assert told == ["stopped"]


async def test_malformed_http_gets_an_error_in_the_common_shape():
    """Malformed HTTP gets a JSON error, which clients of the API can read."""
    async with served() as connect:
        reader, writer = await connect()
        writer.write(b"\x16\x03\x01 this is TLS\r\n\r\n")
        assert (await read_response(reader))[0] == 400


def test_the_limit_of_connections_leaves_room_for_files():
    """A process has a limit of open files, which connections count towards."""
    assert 0 < ConnectionLimits().max_connections <= ConnectionLimits().connections
