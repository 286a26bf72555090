"""Bodies that are records: read one, refuse a bad one before anything else happens, and write one."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from nat.backend.server.errors import TOO_LONG, ApiError, from_validation
from nat.wire.json_bounds import check_batch, check_request

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

SMALL = 2**20
"""Bytes of a body that says what to do, and to which model."""
LARGE = 1_000_000
"""Bytes from which on a body's records are so many that walking through them again and again takes most of the time."""
_one_large_body = threading.Lock()


async def _read_bytes(http: Request, *, max_bytes: int, reason: str, code: str | None = None) -> bytes:
    """The body of a route whose limit is below that of the server.

    Raises:
        ApiError: 413; before anything is read, if the size is announced.

    """
    message = f"the request's body is larger than the {max_bytes} bytes that {reason}"
    too_large = ApiError(message, status=413, code=code)
    if int(http.headers.get("content-length", "0")) > max_bytes:
        raise too_large
    body = bytearray()
    async for piece in http.stream():
        body += piece
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


async def read_chat(http: Request, kind: type[M], *, max_bytes: int) -> M:
    """The checked body of a request to the model.

    Raises:
        ApiError: 413 if it is too large or has too many objects, 400 with the first findings.

    """
    body = await _read_bytes(http, max_bytes=max_bytes, reason="the model's context can need", code=TOO_LONG)
    _bounded(check_request, body)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error) from error


async def read(http: Request, kind: TypeAdapter[T]) -> T:
    """The checked body of a request that says what to do.

    Raises:
        ApiError: 413 if it is larger than `SMALL`, 422 with the first findings.

    """
    return await _read(kind, await _read_bytes(http, max_bytes=SMALL, reason="a request without a batch may have"))


async def read_batch(http: Request, kind: TypeAdapter[T]) -> T:
    """The same for a batch, as large as the server takes."""
    content = await http.body()
    _bounded(check_batch, content)
    return await _read(kind, content)


def _bounded(check: Callable[[bytes], None], content: bytes) -> None:
    try:
        check(content)
    except ValueError as error:
        raise ApiError(str(error), status=413) from error


async def _read(kind: TypeAdapter[T], content: bytes) -> T:
    """In a thread, because others are to be answered meanwhile."""
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
