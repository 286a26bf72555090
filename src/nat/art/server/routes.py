"""Open the server for ART's clients: one base model, their adapters, and one application on two ports.

Its routes are those of `art run` that clients of 0.5.17 use, the guide's plug-in among them, and `GET /jobs/{id}`.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from socket import gethostname

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nat.art.options import API_KEY, ArtServeOptions
from nat.art.server.models import ArtModels
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.serverless import serverless_router
from nat.art.server.submissions import Submissions
from nat.art.server.training_call import TrainingStream
from nat.art.wire import (
    SERVING_HEADER,
    ArtDeleteRequest,
    ArtModel,
    ArtPrepareRequest,
    ArtTrainRequest,
)
from nat.backend.models import load_base
from nat.backend.protocol import Endpoint, Opened
from nat.backend.server.bodies import json_answer, read
from nat.http.errors import ApiError
from nat.wire.hosts import is_everywhere

logger = logging.getLogger(__name__)

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d+)?")


@contextmanager
def open_art(options: ArtServeOptions, endpoint: Endpoint) -> Iterator[Opened]:
    """Load the base model; clients' adapters are made or restored on request."""
    models = ArtModels(load_base(options), options)
    try:
        served = ServedAnswers()
        submissions = Submissions(models, served)
        inference_port = endpoint.ports["inference_port"]
        yield Opened(
            models.worker,
            [
                control_router(submissions, inference_port=inference_port, api_key=endpoint.api_key, host=options.host),
                serverless_router(submissions, base_model=options.name),
            ],
            answers=served,
            greeting=greeting(options, **endpoint.ports, hostname=gethostname()),
        )
    finally:
        models.close()


def greeting(options: ArtServeOptions, *, port: int, inference_port: int, hostname: str) -> str:
    """How to connect to the server; if it listens on all addresses, by its machine's name."""
    host = hostname if is_everywhere(options.host) else options.host
    control, inference = (inference_url("", host, number) for number in (port, inference_port))
    key, of_key = (API_KEY, "") if options.key_is_well_known else ("KEY", "; KEY is the one that you chose")
    return (
        f"Serving {options.name} for OpenPipe ART's clients (key: {key}{of_key})\n"
        f"  train through   {control.removesuffix('/v1')}\n"
        f"  sample through  {inference}\n"
        f"  checkpoints in  {options.output_dir}/<project>/models/<name>/checkpoints\n"
        f'Next: art.ServerlessBackend(api_key="{key}", base_url="{control}"), or `nat finetune` with an '
        "openpipe_art_trainer_adapter."
    )


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
        model = await read(http, ArtModel)
        self._models.register(model)
        return JSONResponse(None)

    async def get_step(self, http: Request) -> Response:
        model = await read(http, ArtModel)
        return JSONResponse(self._models.step(model))

    async def prepare(self, http: Request) -> Response:
        request = await read(http, ArtPrepareRequest)
        await self._models.prepare(request.model)
        for name, ours in (("port", self._inference_port), ("api_key", self._api_key)):
            if request.config.server_args.get(name) not in (None, ours):  # of an inference server; this one has its own
                logger.warning("%s requests another %s; it gets this server's own", request.model.name, name)
        serving = self._models.serving(request.model).model_dump(mode="json")
        return JSONResponse(
            [inference_url(http.headers.get("host", ""), self._host, self._inference_port), self._api_key],
            headers={SERVING_HEADER: json.dumps(serving)},  # ASCII, without line breaks
        )

    async def train(self, http: Request) -> Response:
        request = await read(http, ArtTrainRequest)
        call = await self._submissions.start(
            request.model, request.trajectory_groups, request.config, request.dev_config
        )
        return TrainingStream(call)

    async def delete_others(self, http: Request) -> Response:
        request = await read(http, ArtDeleteRequest)
        await self._models.delete(request.model, request.steps_to_keep)
        return JSONResponse(None)

    async def job(self, http: Request) -> Response:
        job_id = http.path_params["job_id"]
        state = self._models.job(job_id)
        if state is None:
            raise ApiError(f"no job {job_id!r} ran here", status=404, param="job_id")
        return json_answer(state)
