"""Errors in the shape that OpenAI's clients understand, with the message where clients of FastAPI look for it, too."""

from collections.abc import Sequence
from http import HTTPStatus

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from nat.backend.failures import explained
from nat.errors import (
    BackendError,
    BatchRefused,
    ExportRefused,
    ModelBusy,
    ModelNotPrepared,
    ModelNotServed,
    ModelNotSupported,
    TooManyModels,
    findings_of,
)
from nat.secrets import excerpt
from nat.wire.answers import ErrorAnswer, ErrorDetail

CLIENT_CLOSED_REQUEST = 499
"""What proxies log for a client that went away."""
TOO_LONG = "context_length_exceeded"
"""OpenAI's code for what does not fit the model."""
_SHOWN_FINDINGS = 10
_LONGEST = 4000
"""Characters of a message: it may show what a client sent, which is megabytes."""
_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "server_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "server_error",
}


_STATUSES: dict[type[BackendError], HTTPStatus] = {
    BatchRefused: HTTPStatus.BAD_REQUEST,
    ExportRefused: HTTPStatus.CONFLICT,
    ModelBusy: HTTPStatus.CONFLICT,
    ModelNotPrepared: HTTPStatus.BAD_REQUEST,
    ModelNotServed: HTTPStatus.NOT_FOUND,
    ModelNotSupported: HTTPStatus.BAD_REQUEST,
    TooManyModels: HTTPStatus.CONFLICT,
}
"""What is the client's to mend; any other failure of the backend is the server's."""


class ApiError(Exception):
    """A request that cannot be served; `param` names the field that is to blame."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message if len(message) <= _LONGEST else excerpt(message, _LONGEST) + " …"
        self.status = status
        self.param = param
        self.code = code

    def answer(self) -> ErrorAnswer:
        kind = _TYPES.get(HTTPStatus(self.status), "invalid_request_error")
        error = ErrorDetail(message=self.message, type=kind, param=self.param, code=self.code)
        return ErrorAnswer(error=error, detail=self.message)

    def response(self) -> Response:
        return Response(self.answer().model_dump_json(), self.status, media_type="application/json")


def from_validation(error: ValidationError, *, status: int = 400) -> ApiError:
    """The first findings in one message; `param` is the place of the first."""
    findings = findings_of(error)
    return ApiError(first_of(list(map(str, findings))), status=status, param=findings[0].place or None)


def first_of(findings: Sequence[str]) -> str:
    """As many findings as a person reads, and how many more there are."""
    more = len(findings) - _SHOWN_FINDINGS
    return "; ".join([*findings[:_SHOWN_FINDINGS], *([f"and {more} more"] if more > 0 else [])])


async def on_api_error(_: Request, error: Exception) -> Response:
    """A request that cannot be served as asked."""
    assert isinstance(error, ApiError), "registered for ApiError"
    return error.response()


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException), "registered for HTTPException"
    return ApiError(f"{request.method} {request.url.path}: {error.detail}", status=error.status_code).response()


async def on_backend_error(_: Request, error: Exception) -> Response:
    """Something that cannot be done, with its remedy."""
    assert isinstance(error, BackendError), "registered for BackendError"
    status = _STATUSES.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    message = "; ".join(filter(None, [error.message, error.hint]))
    return ApiError(message, status=status).response()


async def on_hang_up(_: Request, __: Exception) -> Response:
    """The client left before it had sent its request; nobody reads the answer."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def on_crash(_: Request, error: Exception) -> Response:
    """Memory, a disk or a bug: the log has the traceback, the client the kind of error and what to do."""
    found = explained(error)
    return ApiError(f"the backend failed: {found.message}; {found.hint}", status=500).response()
