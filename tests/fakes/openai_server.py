"""A scripted OpenAI-compatible server on a real socket that records its requests.

    async with OpenAIServer([Refuse(503), Say("hello")]) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="key")

A script is a list of replies, or a function of the request (sync or async) for workflows whose order is not fixed.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fakes.http_server import HttpServer, SeenRequest, begin_chunks, write_chunk, write_json
from fakes.openai_replies import HangUp, Raw, Refuse, Reply, Say, completion, events, prompt_of

__all__ = ["HangUp", "OpenAIServer", "Raw", "Refuse", "Reply", "Say", "SeenRequest"]

Script = Sequence[Reply] | Callable[[SeenRequest], Reply | Awaitable[Reply]]


class OpenAIServer(HttpServer):
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
        """Start listening; `before_event` is awaited before each event of a stream, so that a test can delay it."""
        super().__init__()
        self.requests: list[SeenRequest] = []
        self.fingerprint = fingerprint
        self.models = ["fake"]
        self.models_status = 200
        self._script = script if script is not None else (lambda _request: Say())
        self._replied = 0
        self._api_key = api_key
        self._knows_token_ids = knows_token_ids
        self._before_event = before_event

    @property
    def base_url(self) -> str:
        return f"{super().base_url}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON of all requests so far."""
        return [request.body for request in self.requests]

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if request.path.endswith("/models") and request.method == "GET":
            data = [{"id": name, "object": "model"} for name in self.models]
            write_json(writer, self.models_status, {"object": "list", "data": data})
            return True
        self.requests.append(request)
        reply = self._objection(request) or await self._reply(request)
        if isinstance(reply, Refuse):
            error = {"message": reply.message, "type": "fake_error", "code": None}
            write_json(writer, reply.status, {"error": error}, reply.headers)
        elif isinstance(reply, Raw):
            writer.write(reply.data)
            await writer.drain()
            if reply.hangs:
                await reader.read()  # until the client has gone
            return False
        elif request.body.get("stream"):
            return await self._stream(reply, request, writer)
        elif isinstance(reply, HangUp):
            return False
        else:
            chat = request.path.endswith("/chat/completions")
            write_json(writer, 200, completion(reply, request.body, chat=chat, fingerprint=self.fingerprint))
        return True

    def _objection(self, request: SeenRequest) -> Refuse | None:
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return Refuse(401, "this is not the key")
        if not self._knows_token_ids and "return_token_ids" in request.body:
            return Refuse(400, "Unrecognized request argument supplied: return_token_ids")
        if not _complete(request):
            return Refuse(400, "messages or prompt are missing, or not what the API takes")
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
        begin_chunks(writer, {"content-type": "text/event-stream"})
        say = reply.say if isinstance(reply, HangUp) else reply
        for number, event in enumerate(events(say, request.body, fingerprint=self.fingerprint)):
            if isinstance(reply, HangUp) and number == reply.after:
                await writer.drain()
                return False
            if self._before_event is not None:
                await self._before_event(number)
            write_chunk(writer, f"data: {json.dumps(event)}\n\n")
            await writer.drain()
        write_chunk(writer, "data: [DONE]\n\n")
        write_chunk(writer, "")
        return True


def _complete(request: SeenRequest) -> bool:
    """True if the script can answer the request."""
    try:
        prompt_of(request.body, chat=request.path.endswith("/chat/completions"))
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True
