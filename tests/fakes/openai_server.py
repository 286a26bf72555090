"""A scripted OpenAI-compatible server on a real socket: it replies as told and remembers what it was asked.

    async with OpenAIServer([Refuse(503), Say("hello")]) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="key")

A script is a list of replies, or a function of the request (sync or async) for workflows whose order is not fixed.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fakes.openai_replies import HangUp, Refuse, Reply, Say, completion, events

__all__ = ["HangUp", "OpenAIServer", "Refuse", "Reply", "Say", "SeenRequest"]


@dataclass(frozen=True)
class SeenRequest:
    """One request, as it came over the wire."""

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


Script = Sequence[Reply] | Callable[[SeenRequest], Reply | Awaitable[Reply]]


class OpenAIServer:
    """Serves /v1/chat/completions, /v1/completions and /v1/models on a free loopback port."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        api_key: str | None = None,
        knows_token_ids: bool = True,
        fingerprint: str | None = None,
        before_event: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """`before_event` is awaited before each event of a stream, so that a test can hold it back."""
        self.requests: list[SeenRequest] = []
        self.fingerprint = fingerprint
        self.models = ["fake"]
        self.models_status = 200
        self._script = script if script is not None else (lambda _request: Say())
        self._replied = 0
        self._api_key = api_key
        self._knows_token_ids = knows_token_ids
        self._before_event = before_event
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def base_url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON of all requests so far."""
        return [request.body for request in self.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_all()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def drop_all(self) -> None:
        """Lose all connections, replies under way included."""
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(await _read(reader), writer):
                    pass
        finally:
            del self._connections[task]
            writer.close()

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> bool:
        """False when the connection is to be dropped."""
        if request.path.endswith("/models") and request.method == "GET":
            data = [{"id": name, "object": "model"} for name in self.models]
            _write(writer, self.models_status, {"object": "list", "data": data})
            return True
        self.requests.append(request)
        reply = self._objection(request) or await self._reply(request)
        if isinstance(reply, Refuse):
            error = {"message": reply.message, "type": "fake_error", "code": None}
            _write(writer, reply.status, {"error": error}, reply.headers)
        elif request.body.get("stream"):
            return await self._stream(reply, request, writer)
        elif isinstance(reply, HangUp):
            return False
        else:
            chat = request.path.endswith("/chat/completions")
            _write(writer, 200, completion(reply, request.body, chat=chat, fingerprint=self.fingerprint))
        await writer.drain()
        return True

    def _objection(self, request: SeenRequest) -> Refuse | None:
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return Refuse(401, "this is not the key")
        if not self._knows_token_ids and "return_token_ids" in request.body:
            return Refuse(400, "Unrecognized request argument supplied: return_token_ids")
        return None

    async def _reply(self, request: SeenRequest) -> Reply:
        if isinstance(self._script, Sequence):
            self._replied += 1
            if self._replied > len(self._script):
                return Refuse(500, f"the script has only {len(self._script)} replies")
            return self._script[self._replied - 1]
        reply = self._script(request)
        return await reply if inspect.isawaitable(reply) else reply

    async def _stream(self, reply: Say | HangUp, request: SeenRequest, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        say = reply.say if isinstance(reply, HangUp) else reply
        for number, event in enumerate(events(say, request.body, fingerprint=self.fingerprint)):
            if isinstance(reply, HangUp) and number == reply.after:
                await writer.drain()
                return False
            if self._before_event is not None:
                await self._before_event(number)
            _write_chunk(writer, f"data: {json.dumps(event)}\n\n")
            await writer.drain()
        _write_chunk(writer, "data: [DONE]\n\n")
        _write_chunk(writer, "")
        await writer.drain()
        return True


async def _read(reader: asyncio.StreamReader) -> SeenRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return SeenRequest(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _write(writer: asyncio.StreamWriter, status: int, body: object, headers: dict[str, str] | None = None) -> None:
    content = json.dumps(body).encode()
    fields = {"content-type": "application/json", "content-length": str(len(content)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {status} Fake\r\n{head}\r\n".encode() + content)


def _write_chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
