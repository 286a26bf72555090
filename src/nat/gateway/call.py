"""One call of an agent: forwarded as a chat, answered in the agent's dialect."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from nat.capture.context import deadline
from nat.gateway.dialects import AnswerStream, Body, BrokenOrder, Dialect, DialectMemory
from nat.gateway.retries import Sent
from nat.gateway.upstream import Upstream
from nat.http.asgi import EVENT_STREAM, JSON, Sender
from nat.http.errors import ApiError

Keep = Callable[[Sent], None]
"""Receives the answer once the call is recorded, before the client gets the end of it."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path of the gateway."""

    dialect: Dialect
    upstream: str
    """The upstream's path for it, after its base URL."""


@dataclass(frozen=True, slots=True)
class GatewayCall:
    """A request of an agent, and its upstream."""

    route: Route
    request: Body
    memory: DialectMemory
    upstream: Upstream

    async def answer(self, sender: Sender, keep: Keep) -> None:
        """Send the request upstream, record the answer and pass it on.

        Raises:
            ApiError: there is no answer; a stream that has begun also carries the error itself.

        """
        chat = self.route.dialect.to_chat(self.request, self.memory)
        try:
            async with deadline(self.upstream.timeout):
                await (self._stream(chat, sender, keep) if chat.get("stream") else self._whole(chat, sender, keep))
        except TimeoutError as error:
            message = f"no answer within {self.upstream.timeout:g} s, the `timeout` of the LLM"
            raise ApiError(message, status=504) from error

    async def _whole(self, chat: Body, sender: Sender, keep: Keep) -> None:
        completion = await self.upstream.complete(self.route.upstream, chat)
        sent = Sent(JSON, to_json(_read(self.route.dialect.from_chat, completion, self.request, self.memory)))
        keep(sent)
        await sender.whole(200, sent.content, sent.content_type)
        sent.delivered = True

    async def _stream(self, chat: Body, sender: Sender, keep: Keep) -> None:
        async with self.upstream.stream(self.route.upstream, chat) as answer:
            stream, pieces = self.route.dialect.stream(self.request, self.memory), list[bytes]()
            await sender.begin(EVENT_STREAM)
            try:
                async with aclosing(aiter(answer)) as parts:
                    async for chunks in parts:
                        pieces.append(_pushed(stream, chunks))
                        await sender.write(pieces[-1])
                pieces += (_pushed(stream, answer.last), stream.finish())
            except ApiError as error:
                await sender.end(stream.fail(error.message))
                raise
            except asyncio.CancelledError:
                await sender.end(stream.fail("the time of this call or of its rollout is over"))
                raise
        sent = Sent(EVENT_STREAM, b"".join(pieces))
        keep(sent)
        await sender.end(b"".join(pieces[-2:]))
        sent.delivered = True


def _pushed(stream: AnswerStream, chunks: list[Body]) -> bytes:
    for chunk in chunks:
        if error := chunk.get("error"):
            text = error["message"] if isinstance(error, dict) and "message" in error else error
            raise ApiError(str(text), status=502)
    return b"".join(_read(stream.push, chunk) for chunk in chunks)


def _read(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except (BrokenOrder, TypeError, AttributeError, LookupError) as error:  # JSON of another shape than an answer's
        raise ApiError(f"the model server's response cannot be read: {error}", status=502) from error
