"""What ART's routes answer with: JSON of few bytes, nothing, or a refusal."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import JsonValue
from starlette.responses import Response

from nat.http.errors import ApiError


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
