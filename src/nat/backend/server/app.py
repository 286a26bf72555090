"""The backend's HTTP application: routes and the check of its key."""

from collections.abc import Sequence
from http import HTTPStatus

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from nat.backend.failures import explained
from nat.backend.sampling import SamplingEngine
from nat.backend.server.bodies import json_answer
from nat.backend.server.chat import ChatRoute
from nat.backend.server.completions import CompletionRoute, TokenRoutes
from nat.backend.server.service import AnswerMemory, Service
from nat.errors import (
    AlgorithmError,
    BackendError,
    BatchRefused,
    ExportRefused,
    ModelBusy,
    ModelNotPrepared,
    ModelNotServed,
    ModelNotSupported,
    NameRefused,
    TooManyModels,
)
from nat.http.errors import ApiError
from nat.http.guards import Guard, KeyCheck, OriginCheck
from nat.http.starlette import add_error_handlers, error_response
from nat.wire.serving import Health

OPENAI_PATHS = "/v1/"
"""Path prefix on which the OpenAI SDKs send their key."""
_KEY_HINT = "as a bearer token, in X-API-Key, or as the password of Basic authentication (http://any:KEY@host)"
_STATUSES: dict[type[BackendError], HTTPStatus] = {
    AlgorithmError: HTTPStatus.BAD_REQUEST,
    BatchRefused: HTTPStatus.BAD_REQUEST,
    ExportRefused: HTTPStatus.CONFLICT,
    ModelBusy: HTTPStatus.CONFLICT,
    ModelNotPrepared: HTTPStatus.BAD_REQUEST,
    ModelNotServed: HTTPStatus.NOT_FOUND,
    ModelNotSupported: HTTPStatus.BAD_REQUEST,
    NameRefused: HTTPStatus.BAD_REQUEST,
    TooManyModels: HTTPStatus.CONFLICT,
}
"""Status codes of errors that the client can correct; any other error is the server's."""


def create_app(
    engine: SamplingEngine,
    *,
    api_key: str,
    well_known_key: bool = False,
    answers: AnswerMemory | None = None,
    extra_routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """Create the application: the OpenAI routes on `engine`'s models, and other routers behind the same guards.

    A `well_known_key` is needed only where the OpenAI SDKs send one; it keeps nobody out, so web pages are refused by
    their origin. With `answers`, chat answers carry their tokens and are remembered there, and unknown fields of
    requests are ignored: such clients were written for other servers.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ignored: set[str] | None = None if answers is None else set()
    app.include_router(inference_router(Service(engine, answers=answers, ignored=ignored)))
    for router in extra_routers:
        app.include_router(router)
    add_error_handlers(app, lambda error: ApiError("the backend failed: " + "; ".join(explained(error)), status=500))
    app.add_exception_handler(BackendError, _answer_to)
    paths = OPENAI_PATHS if well_known_key else "/"
    app.add_middleware(Guard, check=KeyCheck(api_key, _KEY_HINT, paths=paths, basic=True))
    if well_known_key:
        app.add_middleware(Guard, check=OriginCheck(own_pages=False))
    return app


def inference_router(service: Service) -> APIRouter:
    """Chat and text completions, the served names, and a health check."""
    router = APIRouter()
    router.add_route("/v1/chat/completions", ChatRoute(service).handle, methods=["POST"])
    router.add_route("/v1/completions", CompletionRoute(service).handle, methods=["POST"])
    for path in ("/v1/responses", "/v1/messages"):
        router.add_route(path, _not_spoken, methods=["POST"])
    tokens = TokenRoutes(service)
    router.add_route("/tokenize", tokens.tokenize, methods=["POST"])
    router.add_route("/detokenize", tokens.detokenize, methods=["POST"])

    @router.get("/v1/models")
    async def models() -> Response:
        card = {
            "object": "model",
            "created": service.now(),
            "owned_by": "nat",
            "max_model_len": service.loaded.max_seq_length,
        }
        return json_answer({"object": "list", "data": [{"id": name, **card} for name in service.engine.names()]})

    @router.get("/health")
    async def health() -> Health:
        loaded = service.loaded
        return Health(
            policy_version=service.engine.policy_version,
            device=loaded.device.type,
            dtype=str(loaded.dtype).removeprefix("torch."),
            vocabulary=loaded.tokenizer.size,
        )

    return router


async def _not_spoken(http: Request) -> Response:
    way = "let the client use chat completions, or run the agent as a program, whose gateway translates"
    raise ApiError(f"{http.url.path} is not served here: {way}", status=HTTPStatus.NOT_FOUND)


async def _answer_to(_: Request, error: Exception) -> Response:
    assert isinstance(error, BackendError), "registered for BackendError"
    status = _STATUSES.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    return error_response(ApiError(error.in_line, status=status))
