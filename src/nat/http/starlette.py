"""Send this package's errors from Starlette applications, including FastAPI's."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from nat.http.asgi import JSON
from nat.http.errors import ApiError, ClientDisconnected

CLIENT_CLOSED_REQUEST = 499
"""The status that proxies log for a disconnected client, which does not read the response."""


def add_error_handlers(app: Starlette, explain_crash: Callable[[Exception], ApiError]) -> None:
    """Send every error in the same shape; `explain_crash` makes the error for unexpected exceptions."""

    async def on_crash(_: Request, error: Exception) -> Response:
        return error_response(explain_crash(error))

    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnected, _on_disconnect)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, on_crash)


def error_response(error: ApiError) -> Response:
    """The error as a response."""
    return Response(error.json(), error.status, media_type=JSON)


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError), "registered for ApiError"
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Answer unknown paths and methods."""
    assert isinstance(error, HTTPException), "registered for HTTPException"
    return error_response(ApiError(f"{request.method} {request.url.path}: {error.detail}", status=error.status_code))


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)
