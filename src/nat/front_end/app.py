"""The HTTP application: routes, guards, and the API reference at `/docs` and `/openapi.json`."""

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import JsonSchemaValue
from starlette.responses import JSONResponse, Response

from nat.builder.function import Function
from nat.builder.tool import inlined
from nat.front_end.conversion import INPUT_KEY
from nat.front_end.routes import ChatRoutes, GenerateRoutes
from nat.http.errors import ApiError
from nat.http.guards import Guard, KeyCheck, OriginCheck
from nat.http.starlette import add_error_handlers
from nat.rollout.served import ServedWorkflow
from nat.wire.rollout import KEY_VARIABLE, PROTOCOL_VERSION, ROLLOUT_HEADER

CHAT_BODY: JsonSchemaValue = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {"role": {"type": "string"}, "content": {}},
            },
            "description": "A workflow with an argument `messages` gets all; any other gets the last user text.",
        },
        "model": {"type": "string", "description": "Model name, which the response repeats."},
        "stream": {"type": "boolean", "description": "Stream the response; only at /v1/chat/completions."},
    },
}


def create_app(
    served: ServedWorkflow, *, name: str, api_key: str | None = None, allowed_hosts: Collection[str] = ()
) -> FastAPI:
    """Create the application; without a key, only this machine and pages of `allowed_hosts` may call it."""
    app = FastAPI(title=name, description=served.function.description or "", redoc_url=None)
    generate, chat = GenerateRoutes(served), ChatRoutes(served, name=name)
    body = _input_body(served.function)
    for path, handler, schema in (
        ("/generate", generate.generate, body),
        ("/generate/stream", generate.stream, body),
        ("/generate/full", generate.full, body),
        ("/chat", chat.chat, CHAT_BODY),
        ("/chat/stream", chat.stream, CHAT_BODY),
        ("/v1/chat/completions", chat.completions, CHAT_BODY),
    ):
        app.add_api_route(path, handler, methods=["POST"], response_model=None, openapi_extra=_request_body(schema))
    app.add_api_route("/health", health, methods=["GET"], response_model=None)
    add_error_handlers(app, _explain_crash)
    check = (
        OriginCheck(own_pages=True, allowed_hosts=allowed_hosts)
        if api_key is None
        else KeyCheck(api_key, f"as a bearer token (`nat` clients read it from {KEY_VARIABLE})")
    )
    app.add_middleware(Guard, check=check)
    return app


async def health() -> Response:
    """Report that the workflow is served; the header announces `/generate/full` with its steps."""
    return JSONResponse({"status": "healthy"}, headers={ROLLOUT_HEADER: PROTOCOL_VERSION})


def _explain_crash(error: Exception) -> ApiError:
    """Describe a bug: the client gets the error's class, and the log has the traceback."""
    return ApiError(f"the server failed: {error}", status=500, type=type(error).__name__)


def _input_body(function: Function) -> JsonSchemaValue:
    """The workflow's arguments by name, or the input as `input_message`."""
    # Inlined, because references would not resolve here.
    schema = inlined(function.input_schema.model_json_schema())
    return {"anyOf": [schema, {"type": "object", "required": [INPUT_KEY], "properties": {INPUT_KEY: {}}}]}


def _request_body(body: JsonSchemaValue) -> dict[str, Any]:
    """A route's part of the OpenAPI page."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}
