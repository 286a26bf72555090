"""The workflow as a chat model, in OpenAI's shapes."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nat.front_end.errors import from_failure
from nat.front_end.exchange import Emit, Stream, while_waited_for
from nat.front_end.guard import read_body
from nat.front_end.inputs import chat_input
from nat.front_end.outputs import DONE, chunk, chunk_text, completion, data_line, usage_of
from nat.front_end.served import ServedWorkflow


class ChatRoutes:
    """Handlers of `/chat…` and `/v1/chat/completions`."""

    def __init__(self, served: ServedWorkflow, *, name: str, clock: Callable[[], float] = time.time) -> None:
        """`name` is the model's, for requests that name none."""
        self._served = served
        self._name = name
        self._clock = clock

    async def completions(self, request: Request) -> Response:
        """The answer to a conversation, streamed if the request says `"stream": true`."""
        body = await read_body(request)
        return (
            self._streamed(body) if isinstance(body, dict) and body.get("stream") else await self._whole(request, body)
        )

    async def chat(self, request: Request) -> Response:
        """The answer to a conversation."""
        return await self._whole(request, await read_body(request))

    async def stream(self, request: Request) -> Response:
        """The answer to a conversation, piece by piece."""
        return self._streamed(await read_body(request))

    async def _whole(self, request: Request, body: object) -> Response:
        value = chat_input(body, self._served.function)
        rollout = await while_waited_for(request, self._served.play(value))
        if rollout.error is not None:
            raise from_failure(rollout.error)
        return JSONResponse(completion(rollout.output, **self._head(body), usage=usage_of(rollout.steps)))

    def _streamed(self, body: object) -> Response:
        value, head = chat_input(body, self._served.function), self._head(body)

        async def work(emit: Emit) -> None:
            emit(data_line(chunk({"role": "assistant", "content": ""}, **head)))
            rollout = await self._served.play(
                value, on_chunk=lambda piece: emit(data_line(chunk({"content": chunk_text(piece)}, **head)))
            )
            if rollout.error is not None:
                emit(data_line(from_failure(rollout.error).body()))
            else:
                emit(data_line(chunk({}, **head, end=True)))
            emit(DONE)

        return Stream(work, bytes)

    def _head(self, body: object) -> dict[str, Any]:
        model = body.get("model") if isinstance(body, dict) else None
        return {
            "answer_id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(self._clock()),
            "model": model or self._name,
        }
