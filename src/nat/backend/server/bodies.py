"""Bodies that are records: read one, refuse a bad one before anything else happens, and write one."""

import asyncio
import gc
import threading
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from nat.backend.server.errors import TOO_LONG, ApiError, from_validation

T = TypeVar("T")

LARGE = 1_000_000
"""Bytes from which on a body's records are so many that walking through them again and again takes most of the time."""
_one_large_body = threading.Lock()


async def read_bytes(http: Request, *, max_bytes: int) -> bytes:
    """A body of a route that takes less than the server does.

    Raises:
        ApiError: 413; before anything is read, if the size is announced.

    """
    message = f"the request's body is larger than the {max_bytes} bytes that the model's context can need"
    too_large = ApiError(message, status=413, code=TOO_LONG)
    if int(http.headers.get("content-length", "0")) > max_bytes:
        raise too_large
    body = bytearray()
    async for piece in http.stream():
        body += piece
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


async def read(http: Request, kind: TypeAdapter[T]) -> T:
    """The checked body; in a thread, because batches are large and others are to be answered meanwhile.

    Raises:
        ApiError: 422 with every finding.

    """
    content = await http.body()
    try:
        return await asyncio.to_thread(parse, kind, content)
    except ValidationError as error:
        raise from_validation(error, status=422) from error


def parse(kind: TypeAdapter[T], content: bytes) -> T:
    """Check a body; a large one without the garbage collector, which holds up all threads and finds nothing."""
    if len(content) < LARGE:
        return kind.validate_json(content)
    with _one_large_body:
        gc.disable()
        try:
            return kind.validate_json(content)
        finally:
            gc.enable()


def json_answer(record: BaseModel) -> Response:
    """A record as it is on the wire."""
    return Response(record.model_dump_json(), media_type="application/json")
