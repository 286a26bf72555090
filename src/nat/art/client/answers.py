"""What an ART server answered: read, or told what is wrong with it. Pure."""

import json
from http import HTTPStatus
from typing import Any

import httpx

from nat.errors import BackendError, TrainingFailed
from nat.secrets import excerpt

_ERROR_CHARS = 2000


class RouteMissing(BackendError):
    """The server is of a version that lacks a route."""


def check_status(response: httpx.Response) -> None:
    """Raise unless the status is a good one: a server that says no is no server that works."""
    if response.is_success:
        return
    kind = RouteMissing if response.status_code == HTTPStatus.NOT_FOUND else BackendError
    request = response.request
    raise kind(
        f"the ART server answered {request.method} {request.url} with {response.status_code}: {_detail(response)}",
        hint=_HINTS.get(response.status_code, "the answer, or the server's log, says what it did not like"),
    )


_HINTS = {
    401: "set `backend.api_key` to the key that the server was started with",
    403: "set `backend.api_key` to the key that the server was started with",
    404: "check that `ip` and `port` lead to an ART server",
    409: "another run trains this model; wait for it, or choose another `backend.name`",
}


def unexpected(response: httpx.Response, *, wanted: str) -> BackendError:
    """The error for an answer with a good status that says something else than ART's servers say."""
    return BackendError(
        f"{response.request.url} should have told {wanted}, but it said {excerpt(repr(response.text), _ERROR_CHARS)}",
        hint="check that an ART server answers there, and nothing else",
    )


def read_json(response: httpx.Response) -> Any:
    """The answer; None if it is none that can be read."""
    try:
        return response.json()
    except ValueError:
        return None


def _detail(response: httpx.Response) -> str:
    """What the server says, in ART's shape or as it is."""
    answer = read_json(response)
    detail = answer.get("detail") if isinstance(answer, dict) else None
    return detail if isinstance(detail, str) else excerpt(response.text, _ERROR_CHARS)


def read_metrics(line: str) -> dict[str, Any]:
    """One line of the stream."""
    try:
        metrics = json.loads(line)
    except ValueError:
        metrics = None
    if not isinstance(metrics, dict):
        raise TrainingFailed(f"a line of the training stream holds no metrics: {excerpt(repr(line), 200)}")
    if "error" in metrics:
        raise TrainingFailed(f"the server reported an error: {metrics['error']}")
    return metrics
