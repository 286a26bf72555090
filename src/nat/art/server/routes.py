"""The routes of `art run` that clients of 0.5.17 use, the guide's plug-in among them, and `GET /jobs/{id}`."""

import json
import logging
import re

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nat.art.server.submissions import Submissions
from nat.art.server.training_call import TrainingStream
from nat.art.wire import (
    SERVING_HEADER,
    ArtDeleteRequest,
    ArtModel,
    ArtPrepareRequest,
    ArtTrainRequest,
    BareModel,
)
from nat.backend.server.bodies import json_answer, read
from nat.http.errors import ApiError

logger = logging.getLogger(__name__)

_MODEL: TypeAdapter[ArtModel] = TypeAdapter(BareModel)
_PREPARE = TypeAdapter(ArtPrepareRequest)
_TRAIN = TypeAdapter(ArtTrainRequest)
_DELETE = TypeAdapter(ArtDeleteRequest)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d+)?")


def control_router(submissions: Submissions, *, inference_port: int, api_key: str, host: str) -> APIRouter:
    """The control routes; `host` is the inference host for clients that send no usable Host header."""
    routes = _ArtRoutes(submissions, inference_port=inference_port, api_key=api_key, host=host)
    router = APIRouter()
    for path, handler in {
        "/close": routes.close,
        "/register": routes.register,
        "/_get_step": routes.get_step,
        "/_prepare_backend_for_training": routes.prepare,
        "/_train_model": routes.train,
        "/_delete_checkpoint_files": routes.delete_others,
    }.items():
        router.add_route(path, handler, methods=["POST"])
    for path in ("/healthcheck", "/health/"):
        router.add_route(path, routes.health, methods=["GET"])
    router.add_route("/jobs/{job_id}", routes.job, methods=["GET"])
    return router


def inference_url(host_header: str, host: str, port: int) -> str:
    """The URL of the inference routes, with the host by which the client reached the server."""
    match = _HOST.fullmatch(host_header)
    name = match[1] if match else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/v1"


class _ArtRoutes:
    """Handlers on the models and their training calls."""

    def __init__(self, submissions: Submissions, *, inference_port: int, api_key: str, host: str) -> None:
        self._submissions = submissions
        self._models = submissions.models
        self._inference_port = inference_port
        self._api_key = api_key
        self._host = host

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def close(self, _: Request) -> Response:
        """Acknowledge a client that is done; others may go on, so nothing is closed."""
        return JSONResponse(None)

    async def register(self, http: Request) -> Response:
        model = await read(http, _MODEL)
        self._models.register(model)
        return JSONResponse(None)

    async def get_step(self, http: Request) -> Response:
        model = await read(http, _MODEL)
        return JSONResponse(self._models.step(model))

    async def prepare(self, http: Request) -> Response:
        request = await read(http, _PREPARE)
        await self._models.prepare(request.model)
        self._warn_of_other_server(request)
        serving = self._models.serving(request.model).model_dump(mode="json")
        return JSONResponse(
            [inference_url(http.headers.get("host", ""), self._host, self._inference_port), self._api_key],
            headers={SERVING_HEADER: json.dumps(serving)},  # ASCII, without line breaks
        )

    async def train(self, http: Request) -> Response:
        request = await read(http, _TRAIN)
        call = await self._submissions.start(
            request.model, request.trajectory_groups, request.config, request.dev_config
        )
        return TrainingStream(call)

    async def delete_others(self, http: Request) -> Response:
        request = await read(http, _DELETE)
        await self._models.delete(request.model, request.steps_to_keep)
        return JSONResponse(None)

    async def job(self, http: Request) -> Response:
        job_id = http.path_params["job_id"]
        state = self._models.job(job_id)
        if state is None:
            raise ApiError(f"no job {job_id!r} ran here", status=404, param="job_id")
        return json_answer(state)

    def _warn_of_other_server(self, request: ArtPrepareRequest) -> None:
        """The client may request a port and a key of the inference server; this one has its own already."""
        wanted = request.config.server_args
        for name, ours in (("port", self._inference_port), ("api_key", self._api_key)):
            if wanted.get(name) not in (None, ours):
                logger.warning("%s requests another %s; it gets this server's own", request.model.name, name)
