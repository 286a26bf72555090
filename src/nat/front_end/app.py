"""The HTTP application: the routes, what guards them, and their description at `/docs` and `/openapi.json`."""

from collections.abc import Collection

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from nat.asgi.head_check import HeadCheck
from nat.front_end.chat import ChatRoutes
from nat.front_end.description import CHAT_BODY, describe, input_body
from nat.front_end.errors import ServeError, on_crash, on_http_exception, on_serve_error
from nat.front_end.exchange import ClientGone
from nat.front_end.generate import GenerateRoutes
from nat.front_end.guard import needs_key, no_web_pages
from nat.front_end.served import ServedWorkflow
from nat.wire.rollout import PROTOCOL_VERSION, ROLLOUT_HEADER

_HUNG_UP = 499
"""What proxies log for a client that went away; nobody reads it."""


def create_app(
    served: ServedWorkflow, *, name: str, api_key: str | None = None, allowed_hosts: Collection[str] = ()
) -> FastAPI:
    """The routes of one workflow, called `name`; without a key, for this machine and for pages of `allowed_hosts`."""
    app = FastAPI(title=name, description=served.function.description or "", redoc_url=None)
    generate, chat = GenerateRoutes(served), ChatRoutes(served, name=name)
    body = input_body(served.function)
    for path, handler, wanted in (
        ("/generate", generate.generate, body),
        ("/generate/stream", generate.stream, body),
        ("/generate/full", generate.full, body),
        ("/chat", chat.chat, CHAT_BODY),
        ("/chat/stream", chat.stream, CHAT_BODY),
        ("/v1/chat/completions", chat.completions, CHAT_BODY),
    ):
        app.add_api_route(path, handler, methods=["POST"], response_model=None, openapi_extra=describe(wanted))
    app.add_api_route("/health", health, methods=["GET"], response_model=None)
    app.add_exception_handler(ServeError, on_serve_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(ClientGone, on_hang_up)
    app.add_exception_handler(ClientDisconnect, on_hang_up)
    app.add_exception_handler(Exception, on_crash)
    app.add_middleware(HeadCheck, objection=no_web_pages(allowed_hosts) if api_key is None else needs_key(api_key))
    return app


async def health() -> Response:
    """Whether the workflow is served; the header says that whole steps can be had."""
    return JSONResponse({"status": "healthy"}, headers={ROLLOUT_HEADER: PROTOCOL_VERSION})


async def on_hang_up(_: Request, __: Exception) -> Response:
    """The client is gone, and the work was cancelled."""
    return Response(status_code=_HUNG_UP)
