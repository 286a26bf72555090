"""Server-sent events as OpenAI streams them: one JSON per `data:` line, then `[DONE]`."""

import logging
from collections.abc import AsyncIterator

from pydantic import BaseModel
from starlette.responses import StreamingResponse

from nat.backend.server.errors import ApiError

logger = logging.getLogger(__name__)


def event(chunk: BaseModel) -> bytes:
    """One chunk on the wire; fields that were not set are left out."""
    return b"data: " + chunk.__pydantic_serializer__.to_json(chunk, exclude_unset=True) + b"\n\n"


def event_stream(chunks: AsyncIterator[bytes]) -> StreamingResponse:
    """An error after the headers are out becomes a last event, because the status is already sent."""
    return StreamingResponse(_closed(chunks), media_type="text/event-stream", headers={"cache-control": "no-cache"})


async def _closed(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    except ApiError as error:
        logger.warning("a stream ended early: %s", error.message)
        yield b"data: " + error.answer().model_dump_json().encode() + b"\n\n"
    yield b"data: [DONE]\n\n"
