"""Read and check JSON bodies, write JSON responses, and stream events."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nat.http.asgi import EVENT_STREAM, JSON, read_body
from nat.http.errors import ApiError, from_validation
from nat.http.sse import DONE, event
from nat.wire.openai_api import Completion

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)

TOO_LONG = "context_length_exceeded"
"""OpenAI's code for a prompt that does not fit the model."""


def log_ignored(names: set[str], logged: set[str]) -> None:
    """Log the unknown fields of requests that are new, and add them to `logged`."""
    if new := names - logged:
        logged |= new
        shown = ", ".join(map(repr, sorted(new)))
        logger.warning("requests have fields that this server does not know and ignores: %s", shown)


async def read_chat(http: Request, kind: type[M], *, ignored: set[str] | None = None) -> M:
    """The checked body of a request to the model; unknown fields are errors, or logged once and kept in `ignored`."""
    body = await read_body(http.receive)
    unknown: set[str] | None = None if ignored is None else set()
    try:
        record = kind.model_validate_json(body, context=unknown)
    except ValidationError as error:
        raise from_validation(error) from error
    if ignored is not None and unknown is not None:
        log_ignored(unknown, ignored)
    return record


async def read(http: Request, kind: type[M]) -> M:
    """The checked body of a command or a batch; a thread parses it, so that others are answered meanwhile."""
    content = await read_body(http.receive)
    try:
        return await asyncio.to_thread(kind.model_validate_json, content)
    except ValidationError as error:
        raise from_validation(error, status=422) from error


def json_answer(answer: Any) -> Response:
    """JSON as a response."""
    return Response(to_json(answer, inf_nan_mode="null"), media_type=JSON)


def chunk_event(chunk: Completion) -> bytes:
    """One chunk of a stream."""
    return event(to_json(chunk, inf_nan_mode="null"))


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """The events, then `[DONE]`. An error becomes the last event, because the status is already sent."""
    return StreamingResponse(_closed(events), media_type=EVENT_STREAM, headers={"cache-control": "no-cache"})


async def _closed(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for each in events:
            yield each
            await asyncio.sleep(0)  # a client that reads at once never lets its sender wait
    except ApiError as error:
        logger.warning("a stream ended early: %s", error.message)
        yield event(error.json())
    yield DONE
