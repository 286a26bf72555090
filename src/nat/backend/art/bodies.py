"""Requests and answers of ART's routes: read a body, refuse a bad one before anything else happens, write JSON."""

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from nat.backend.server.errors import ApiError, from_validation

T = TypeVar("T")

LARGE = 1_000_000
"""Bytes from which on a body's records are so many that walking through them again and again takes most of the time."""
_one_large_body = threading.Lock()


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


@contextmanager
def refusals() -> Iterator[None]:
    """What the models call a ValueError (a name that cannot be one) is the client's mistake."""
    try:
        yield
    except ValueError as error:
        raise ApiError(str(error)) from error


def json_of(value: JsonValue) -> Response:
    """An answer of few bytes."""
    return Response(json.dumps(value), media_type="application/json")


def nothing() -> Response:
    """What ART's servers answer where there is nothing to say."""
    return json_of(None)
