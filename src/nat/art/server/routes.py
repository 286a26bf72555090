"""The routes of `art run`, of all versions from 0.4 to 0.5.18, and `GET /jobs/{id}`."""

import logging
import re

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from nat.art.server import history
from nat.art.server.bodies import json_of, nothing, refusals
from nat.art.server.stream import TrainingStream
from nat.art.server.submissions import Submissions
from nat.art.wire import ArtDeleteRequest, ArtLogRequest, ArtModel, ArtPrepareRequest, ArtTrainRequest, BareModel
from nat.backend.server.bodies import json_answer, read, read_batch
from nat.http.errors import ApiError

logger = logging.getLogger(__name__)

_MODEL: TypeAdapter[ArtModel] = TypeAdapter(BareModel)
_PREPARE = TypeAdapter(ArtPrepareRequest)
_TRAIN = TypeAdapter(ArtTrainRequest)
_LOG = TypeAdapter(ArtLogRequest)
_DELETE = TypeAdapter(ArtDeleteRequest)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d+)?")


def control_router(submissions: Submissions, *, inference_port: int, api_key: str, host: str) -> APIRouter:
    """The control plane; `host` is where clients sample that do not say by which name they know this machine."""
    routes = _Routes(submissions, inference_port=inference_port, api_key=api_key, host=host)
    router = APIRouter()
    for path, handler in {
        "/close": routes.close,
        "/register": routes.register,
        "/_get_step": routes.get_step,
        "/_prepare_backend_for_training": routes.prepare,
        "/_train_model": routes.train,
        "/_log": routes.log,
        "/_delete_checkpoints": routes.delete_worse,
        "/_delete_checkpoint_files": routes.delete_others,
    }.items():
        router.add_route(path, handler, methods=["POST"])
    for path in ("/healthcheck", "/health/"):
        router.add_route(path, routes.health, methods=["GET"])
    router.add_route("/jobs/{job_id}", routes.job, methods=["GET"])
    return router


def inference_url(host_header: str, host: str, port: int) -> str:
    """The OpenAI address of this server under the name by which the client reached it."""
    match = _HOST.fullmatch(host_header)
    name = match[1] if match else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/v1"


class _Routes:
    """HTTP on one side, the models and their training calls on the other."""

    def __init__(self, submissions: Submissions, *, inference_port: int, api_key: str, host: str) -> None:
        self._submissions = submissions
        self._models = submissions.models
        self._inference_port = inference_port
        self._api_key = api_key
        self._host = host

    async def health(self, _: Request) -> Response:
        return json_of({"status": "ok"})

    async def close(self, _: Request) -> Response:
        """A client says goodbye; others may go on, so nothing ends."""
        return nothing()

    async def register(self, http: Request) -> Response:
        model = await read(http, _MODEL)
        with refusals():
            self._models.register(model)
        return nothing()

    async def get_step(self, http: Request) -> Response:
        model = await read(http, _MODEL)
        with refusals():
            return json_of(self._models.step(model))

    async def prepare(self, http: Request) -> Response:
        asked = await read(http, _PREPARE)
        self._tell_what_is_other(asked)
        with refusals():
            await self._models.prepare(asked.model)
        return json_of([inference_url(http.headers.get("host", ""), self._host, self._inference_port), self._api_key])

    async def train(self, http: Request) -> Response:
        asked = await read_batch(http, _TRAIN)
        with refusals():
            call = await self._submissions.start(asked.model, asked.trajectory_groups, asked.config, asked.dev_config)
        return TrainingStream(call)

    async def log(self, http: Request) -> Response:
        asked = await read_batch(http, _LOG)
        with refusals():
            await self._submissions.log(asked.model, asked.trajectory_groups, asked.split)
        return nothing()

    async def delete_worse(self, http: Request) -> Response:
        """Keep the newest checkpoint, and the best if the history tells which it is."""
        model = await read(http, _MODEL)
        benchmark = http.query_params.get("benchmark", "val/reward")
        smoothing = _smoothing(http.query_params.get("benchmark_smoothing", "1.0"))
        with refusals():
            rows, steps = history.read(self._models.folder(model)), self._models.steps(model)
            best = history.best_step(rows, benchmark, smoothing=smoothing, steps=steps)
            if best is None:
                logger.info("no step of %s has a value of %s, so only the newest is kept", model.name, benchmark)
            await self._models.delete(model, [] if best is None else [best])
        return nothing()

    async def delete_others(self, http: Request) -> Response:
        asked = await read(http, _DELETE)
        with refusals():
            await self._models.delete(asked.model, asked.steps_to_keep)
        return nothing()

    async def job(self, http: Request) -> Response:
        job_id = http.path_params["job_id"]
        state = self._models.job(job_id)
        if state is None:
            raise ApiError(f"no job {job_id!r} ran here", status=404, param="job_id")
        return json_answer(state)

    def _tell_what_is_other(self, asked: ArtPrepareRequest) -> None:
        """The client may wish for a port and a key of the inference server; this one is there already."""
        wanted = asked.config.get("server_args") or {}
        for name, ours in (("port", self._inference_port), ("api_key", self._api_key)):
            if wanted.get(name) not in (None, ours):
                logger.warning(
                    "%s asks for another %s of the inference server than this one has; it is told ours. "
                    "Ports and key are chosen when the server is started",
                    asked.model.name,
                    name,
                )


def _smoothing(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ApiError(f"benchmark_smoothing is {text!r}; wanted is a number above 0 and up to 1", status=422)
    return value
