"""Errors in the shape that OpenAI's clients read, with the text for all others beside it."""

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nat.data_models.rollout_failure import RolloutFailure
from nat.secrets import redact
from nat.wire.rollout import ErrorBody


class ServeError(Exception):
    """A request that gets no result."""

    def __init__(self, message: str, *, status: int, type: str, param: str | None = None) -> None:  # noqa: A002 - the name on the wire
        message = redact(message)
        super().__init__(message)
        self.status = status
        self.failure = ErrorBody(type=type, message=message, param=param)

    def body(self) -> dict[str, object]:
        return {"error": self.failure.model_dump(), "detail": self.failure.message}

    def response(self) -> Response:
        return JSONResponse(self.body(), self.status)


def bad_request(message: str, *, param: str | None = None, status: int = HTTPStatus.BAD_REQUEST) -> ServeError:
    """What the client has to mend."""
    return ServeError(message, status=status, type="invalid_request_error", param=param)


def from_failure(failure: RolloutFailure) -> ServeError:
    """The workflow raised, or ran into its deadline."""
    status = HTTPStatus.GATEWAY_TIMEOUT if failure.kind == "timeout" else HTTPStatus.INTERNAL_SERVER_ERROR
    return ServeError(failure.message, status=status, type=failure.type)


async def on_serve_error(_: Request, error: Exception) -> Response:
    """A request that gets no result, for a reason that is known."""
    assert isinstance(error, ServeError), "registered for ServeError"
    return error.response()


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException), "registered for HTTPException"
    return bad_request(f"{request.method} {request.url.path}: {error.detail}", status=error.status_code).response()


async def on_crash(_: Request, error: Exception) -> Response:
    """A bug: the log has the traceback, the client the kind of error."""
    return ServeError(f"the server failed: {error}", status=500, type=type(error).__name__).response()
