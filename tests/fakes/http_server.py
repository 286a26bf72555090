"""A scripted server on a real socket, with as much of HTTP/1.1 as the clients of the tests use."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self


def self_signed() -> ssl.SSLContext:
    """For a server whose certificate nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).with_name("self_signed.pem"))
    return context


@dataclass(frozen=True)
class SeenRequest:
    """One request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def last_text(self) -> str:
        return self.messages[-1]["content"]


class HttpServer:
    """Listens on a free loopback port; a subclass answers a connection's requests in order."""

    tls: ssl.SSLContext | None = None

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the request; False drops the connection."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0, ssl=self.tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.die()

    async def die(self) -> None:
        """Refuse further connections and drop the open ones."""
        assert self._server is not None
        self._server.close()
        for _ in range(4):  # turns of the loop after which an accepted connection is known, so that it can be dropped
            await asyncio.sleep(0)
        self.drop_all()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def drop_all(self) -> None:
        """Close all connections, even in the middle of a response."""
        for task, writer in self._connections.items():
            task.cancel()
            writer.transport.abort()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self.answer(await _read(reader), reader, writer):
                    await writer.drain()
        finally:
            writer.close()


def write_json(writer: asyncio.StreamWriter, status: int, body: object, headers: Mapping[str, str] = {}) -> None:
    """Write a whole response."""
    content = json.dumps(body).encode()
    fields = {"content-type": "application/json", "content-length": str(len(content)), **headers}
    _write_head(writer, f"{status} Fake", fields)
    writer.write(content)


def write_body(writer: asyncio.StreamWriter, content: bytes, headers: Mapping[str, str]) -> None:
    """Write a whole file; `headers` may give the length of another, for an answer to HEAD."""
    _write_head(writer, "200 OK", {"content-length": str(len(content)), **headers})
    writer.write(content)


def begin_chunks(writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> None:
    """Write the head of a streamed response."""
    _write_head(writer, "200 OK", {**headers, "transfer-encoding": "chunked"})


def write_chunk(writer: asyncio.StreamWriter, text: str) -> None:
    """Write one chunk; an empty one ends the response."""
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _write_head(writer: asyncio.StreamWriter, status: str, headers: Mapping[str, str]) -> None:
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n".encode())


async def _read(reader: asyncio.StreamReader) -> SeenRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return SeenRequest(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
