"""The backend's HTTP application: its routes behind the key and the body limit."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from nat.asgi.head_check import HeadCheck
from nat.backend.inference.worker import Worker
from nat.backend.server.bodies import json_answer
from nat.backend.server.chat import ChatRoute
from nat.backend.server.completions import CompletionRoute
from nat.backend.server.errors import ApiError, on_api_error, on_backend_error, on_crash, on_hang_up, on_http_exception
from nat.backend.server.guard import BodyLimit, needs_key, no_web_pages
from nat.backend.server.service import AnswerMemory, Service
from nat.errors import BackendError
from nat.wire.answers import ModelCard, ModelList

MAX_BODY_BYTES = 256 * 2**20
OPENAI_PATHS = "/v1/"
"""How the paths begin on which the OpenAI SDKs send their key."""


def create_app(
    worker: Worker,
    *,
    api_key: str,
    well_known_key: bool = False,
    answers: AnswerMemory | None = None,
    extra_routers: Sequence[APIRouter] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """The OpenAI routes on `worker`'s models, and the routers of others behind the same guards.

    A `well_known_key` is asked for where the OpenAI SDKs send one, and nowhere else; it keeps nobody out, so web
    pages are refused by other means. With `answers`, chat answers carry their tokens and are remembered there.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(inference_router(Service(worker, answers=answers)))
    for router in extra_routers:
        app.include_router(router)
    app.add_exception_handler(ApiError, on_api_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(BackendError, on_backend_error)
    app.add_exception_handler(ClientDisconnect, on_hang_up)
    app.add_exception_handler(Exception, on_crash)
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    app.add_middleware(HeadCheck, objection=needs_key(api_key, paths=OPENAI_PATHS if well_known_key else "/"))
    if well_known_key:
        app.add_middleware(HeadCheck, objection=no_web_pages)
    return app


def inference_router(service: Service) -> APIRouter:
    """Chat and text completions, the served names, and whether the server is up."""
    router = APIRouter()
    router.add_route("/v1/chat/completions", ChatRoute(service).handle, methods=["POST"])
    router.add_route("/v1/completions", CompletionRoute(service).handle, methods=["POST"])

    @router.get("/v1/models")
    async def models() -> Response:
        cards = [
            ModelCard(
                id=name,
                object="model",
                created=service.now(),
                owned_by="nat",
                max_model_len=service.loaded.max_seq_length,
            )
            for name in service.worker.pool.names()
        ]
        return json_answer(ModelList(object="list", data=cards))

    @router.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "policy_version": service.worker.policy_version}

    return router
