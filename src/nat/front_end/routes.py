"""The toolkit's routes, and OpenAI's, which serve the workflow as a chat model."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.intermediate_step import IntermediateStep
from nat.front_end.conversion import (
    chat_input,
    chunk,
    chunk_text,
    completion,
    exactly,
    rollout_input,
    usage_of,
    workflow_input,
    wrapped,
)
from nat.http.asgi import EVENT_STREAM, cancel_and_wait, cancel_on_disconnect, model_named, parse_json, read_body
from nat.http.errors import ApiError
from nat.http.sse import DONE, event
from nat.rollout.served import ServedWorkflow, failure_error
from nat.rollout.step_lines import plain_event, step_events
from nat.wire.rollout import PROTOCOL_VERSION, ROLLOUT_HEADER, RolloutOptions

Emit = Callable[[Any], None]
"""Adds the next item to a streamed response; thread-safe."""


class GenerateRoutes:
    """Handlers of `/generate…`: one result, its pieces, or the result with all steps."""

    def __init__(self, served: ServedWorkflow) -> None:
        self._served = served

    async def generate(self, request: Request) -> Response:
        """The workflow's output: an object unchanged, anything else as `{"value": …}`."""
        value = workflow_input(await _body(request), self._served.function)
        rollout = await _finished(request, self._served.run(value))
        return JSONResponse(wrapped(rollout.output))

    async def stream(self, request: Request) -> Response:
        """The workflow's output piece by piece, each as a line `data: …`; an error is `data: {"error": …}`."""
        value = workflow_input(await _body(request), self._served.function)

        async def work(emit: Emit) -> None:
            rollout = await self._served.run(value, on_chunk=lambda piece: emit(_event(wrapped(piece))))
            if rollout.error is not None:
                emit(event(failure_error(rollout.error).json()))

        return _streamed(work, bytes)

    async def full(self, request: Request) -> Response:
        """A line `intermediate_data: …` for each step, then `data: …` with the output, or with `{"error": …}`.

        A rollout of another process gets the exact steps, once it has ended.
        """
        options, body = _rollout_options(request), await _body(request)
        if options is not None:
            rollout = await _ended(request, self._served.run(rollout_input(body), options))
            content = step_events(rollout.steps) + _result(rollout, exact=True)
            return Response(content, media_type=EVENT_STREAM, headers={ROLLOUT_HEADER: PROTOCOL_VERSION})
        value = workflow_input(body, self._served.function)

        def encode(item: IntermediateStep | Rollout) -> bytes:
            return _result(item, exact=False) if isinstance(item, Rollout) else plain_event(item)

        async def work(emit: Emit) -> None:
            emit(await self._served.run(value, on_step=emit))

        return _streamed(work, encode)


class ChatRoutes:
    """Handlers of `/chat…` and `/v1/chat/completions`."""

    def __init__(self, served: ServedWorkflow, *, name: str, clock: Callable[[], float] = time.time) -> None:
        """`name` is the model's name in responses to requests that name none."""
        self._served = served
        self._name = name
        self._clock = clock

    async def completions(self, request: Request) -> Response:
        """The answer to a conversation, streamed if the request says `"stream": true`."""
        body = await _body(request)
        if isinstance(body, dict) and body.get("stream"):
            return self._streamed(body)
        return await self._whole(request, body)

    async def chat(self, request: Request) -> Response:
        """The answer to a conversation."""
        return await self._whole(request, await _body(request))

    async def stream(self, request: Request) -> Response:
        """The answer to a conversation, piece by piece."""
        return self._streamed(await _body(request))

    async def _whole(self, request: Request, body: object) -> Response:
        value, head = chat_input(body, self._served.function), self._head(body)
        rollout = await _finished(request, self._served.run(value))
        return JSONResponse(completion(rollout.output, **head, usage=usage_of(rollout.steps)))

    def _streamed(self, body: object) -> Response:
        value, head = chat_input(body, self._served.function), self._head(body)

        async def work(emit: Emit) -> None:
            emit(_event(chunk({"role": "assistant", "content": ""}, **head)))
            rollout = await self._served.run(
                value, on_chunk=lambda piece: emit(_event(chunk({"content": chunk_text(piece)}, **head)))
            )
            if rollout.error is not None:
                emit(event(failure_error(rollout.error).json()))
            else:
                emit(_event(chunk({}, **head, end=True)))
            emit(DONE)

        return _streamed(work, bytes)

    def _head(self, body: object) -> dict[str, Any]:
        model = model_named(body) if isinstance(body, dict) else None
        return {
            "answer_id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(self._clock()),
            "model": model or self._name,
        }


async def _body(request: Request) -> object:
    return parse_json(await read_body(request.receive))


def _streamed(work: Callable[[Emit], Awaitable[None]], encode: Callable[[Any], bytes]) -> Response:
    """The items of `work` in order, as they come; closing the connection cancels it."""
    end = object()

    async def events() -> AsyncIterator[bytes]:
        loop, items = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def emit(item: Any) -> None:  # items from the loop's own thread take the same way, which keeps the order
            with suppress(RuntimeError):  # the loop is closed, so the client has gone
                loop.call_soon_threadsafe(items.put_nowait, item)

        async def produce() -> None:
            try:
                await work(emit)
            finally:
                emit(end)

        producing = asyncio.create_task(produce())
        try:
            while (item := await items.get()) is not end:
                yield encode(item)
            await producing
        finally:
            await cancel_and_wait(producing)

    return StreamingResponse(events(), headers={"cache-control": "no-cache"}, media_type=EVENT_STREAM)


async def _ended(request: Request, running: Coroutine[Any, Any, Rollout]) -> Rollout:
    """The rollout once it has ended; closing the connection cancels it."""
    task = asyncio.create_task(running)
    await cancel_on_disconnect(request.receive, task)
    return await task


async def _finished(request: Request, running: Coroutine[Any, Any, Rollout]) -> Rollout:
    """The rollout once it has its output."""
    rollout = await _ended(request, running)
    if rollout.error is not None:
        raise failure_error(rollout.error)
    return rollout


def _event(value: object) -> bytes:
    return event(to_json(value, inf_nan_mode="constants"))


def _rollout_options(request: Request) -> RolloutOptions | None:
    text = request.headers.get(ROLLOUT_HEADER)
    if text is None:
        return None
    try:
        return RolloutOptions.from_header(text)
    except ValidationError as error:
        raise ApiError(f"{ROLLOUT_HEADER}: {error.errors(include_url=False)[0]['msg']}") from error


def _result(rollout: Rollout, *, exact: bool) -> bytes:
    """The rollout's last event: its result or its error."""
    if rollout.error is not None:
        return event(failure_error(rollout.error).json())
    return _event({"value": exactly(rollout.output)} if exact else wrapped(rollout.output))
