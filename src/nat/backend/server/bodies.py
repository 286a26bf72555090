"""Read and check JSON bodies, write JSON responses, and stream events."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nat.http.asgi import EVENT_STREAM, JSON
from nat.http.errors import ApiError, from_validation
from nat.http.limits import MAX_BATCH_VALUES, check_batch, check_encoding, check_request, read_body
from nat.http.sse import DONE, event

logger = logging.getLogger(__name__)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

TOO_LONG = "context_length_exceeded"
"""OpenAI's code for a prompt that does not fit the model."""
SMALL = 2**20
"""Maximum bytes of a body without a batch."""
LARGE = 1_000_000
"""From this many bytes on, the garbage collector's walks through a body's records take most of the time."""
_MOST_IGNORED = 100
_LONGEST_NAME = 100
_one_large_body = threading.Lock()


class IgnoredFields:
    """Names of unknown fields in requests, each logged once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, names: set[str]) -> None:
        """Log the names that are new, as long as there are few: clients choose them."""
        new = sorted({name[:_LONGEST_NAME] for name in names} - self._logged)[: _MOST_IGNORED - len(self._logged)]
        if new:
            self._logged.update(new)
            shown = ", ".join(map(repr, new))
            logger.warning("requests have fields that this server does not know and ignores: %s", shown)


async def read_chat(http: Request, kind: type[M], *, max_bytes: int, ignored: IgnoredFields | None = None) -> M:
    """The checked body of a request to the model; unknown fields are errors unless they are `ignored`.

    Raises:
        ApiError: 413 if it is too large or has too many objects, 400 with the first findings.

    """
    reason = "the most that the model's context can need"
    body = await read_body(http.scope, http.receive, max_bytes=max_bytes, reason=reason, code=TOO_LONG)
    check_request(body)
    unknown: set[str] | None = None if ignored is None else set()
    try:
        record = kind.model_validate_json(body, context=unknown)
    except ValidationError as error:
        raise from_validation(error) from error
    if ignored is not None and unknown:
        ignored.log(unknown)
    return record


async def read(http: Request, kind: TypeAdapter[T]) -> T:
    """The checked body of a command.

    Raises:
        ApiError: 413 if it is larger than `SMALL`, 422 with the first findings.

    """
    reason = "the most that a request without a batch may have"
    return await _read(kind, await read_body(http.scope, http.receive, max_bytes=SMALL, reason=reason))


async def read_batch(http: Request, kind: TypeAdapter[T], *, max_objects: int = MAX_BATCH_VALUES) -> T:
    """The checked body of a batch, up to the server's limit.

    Raises:
        ApiError: 415 if it is compressed, 413 if it has more than `max_objects` objects and lists, 422 with the first
            findings.

    """
    check_encoding(http.scope)
    content = await http.body()
    check_batch(content, max_objects=max_objects)
    return await _read(kind, content)


async def _read(kind: TypeAdapter[T], content: bytes) -> T:
    """Parse in a thread, which does not block other requests."""
    try:
        return await asyncio.to_thread(parse, kind, content)
    except ValidationError as error:
        raise from_validation(error, status=422) from error


def parse(kind: TypeAdapter[T], content: bytes) -> T:
    """Check a body; for a large one, pause the garbage collector, which would block all threads and free nothing."""
    if len(content) < LARGE:
        return kind.validate_json(content)
    with _one_large_body:
        gc.disable()
        try:
            return kind.validate_json(content)
        finally:
            gc.enable()


def json_answer(record: BaseModel) -> Response:
    """A record as a response."""
    return Response(record.model_dump_json(), media_type=JSON)


def chunk_event(chunk: BaseModel) -> bytes:
    """One chunk of a stream; fields that were not set are left out."""
    return event(chunk.__pydantic_serializer__.to_json(chunk, exclude_unset=True))


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
