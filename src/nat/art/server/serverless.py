"""The serverless protocol of openpipe-art from 0.5.18 on, under `/v1/preview`: its own remote client trains here.

Ids of models and jobs, and the events of jobs, live as long as the process. The models are on disk: creating one by the
same name again finds it.
"""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nat.art.server.submissions import Submissions
from nat.art.server.training_call import TrainingCall, call_metrics
from nat.art.wire import STEPS, ArtDevTrainConfig, ArtModel, ArtRecord, ArtTrainConfig, ArtTrajectoryGroup
from nat.backend.failures import explained
from nat.backend.server.bodies import read
from nat.errors import NatError
from nat.http.errors import ApiError
from nat.wire.json import Several
from nat.wire.numbers import PositiveAmount

logger = logging.getLogger(__name__)

PREFIX = "/v1/preview"
MAX_JOBS = 1000
"""Training jobs whose events are kept; the oldest are dropped."""
ENTITY = "local"
"""Entity of models for which the client names none."""


class ServerlessModelRequest(ArtRecord):
    """POST /v1/preview/models."""

    entity: str | None = None
    project: str
    name: str
    base_model: str | None = None


class ServerlessDeleteRequest(ArtRecord):
    """DELETE /v1/preview/models/{id}/checkpoints."""

    steps: Several[int]


class ServerlessExperimentalConfig(ArtDevTrainConfig):
    """`experimental_config`: `dev_config` with the learning rate; its defaults are those of 0.5.18."""

    ppo: bool | None = False
    learning_rate: PositiveAmount = 5e-6


class ServerlessTrainRequest(ArtRecord):
    """POST /v1/preview/training-jobs."""

    model_id: str
    trajectory_groups: Several[ArtTrajectoryGroup]
    experimental_config: ServerlessExperimentalConfig = ServerlessExperimentalConfig()


Json = dict[str, Any]


def serverless_router(submissions: Submissions, *, base_model: str) -> APIRouter:
    """Models, their checkpoints, training jobs and their events; `base_model` is the name of the served one."""
    routes = _ServerlessRoutes(submissions, base_model)
    router = APIRouter()
    for method, path, handler in (
        ("POST", "/models", routes.create),
        ("DELETE", "/models/{model_id}", routes.delete),
        ("GET", "/models/{model_id}/checkpoints", routes.checkpoints),
        ("DELETE", "/models/{model_id}/checkpoints", routes.delete_checkpoints),
        ("POST", "/training-jobs", routes.train),
        ("GET", "/training-jobs/{job_id}/events", routes.events),
        ("POST", "/sft-training-jobs", routes.train_sft),
    ):
        router.add_route(PREFIX + path, handler, methods=[method])
    return router


class JobEvents:
    """The events of one call for clients that poll, oldest first; the first has the number of steps."""

    def __init__(self) -> None:
        self.events: list[Json] = []

    async def follow(self, call: TrainingCall) -> None:
        """Turn each step into an event, and the end of the call into a last one."""
        try:
            async for metrics in call_metrics(call):
                if not self.events:
                    self._add("training_started", num_sequences=metrics[STEPS])
                if metrics[STEPS]:
                    self._add("gradient_step", **metrics)
        except NatError as error:
            self._add("training_failed", error_message=str(error))
        except Exception as error:  # the boundary of a job: the client gets every failure as an event
            logger.exception("job %s failed", call.job_id)
            self._add("training_failed", error_message="; ".join(explained(error)))
        else:
            self._add("training_ended")

    def _add(self, kind: str, **data: float | str) -> None:
        self.events.append({"id": str(len(self.events) + 1), "type": kind, "data": data})


class _ServerlessRoutes:
    """Handlers on the models and their training calls."""

    def __init__(self, submissions: Submissions, base_model: str) -> None:
        self._submissions = submissions
        self._models = submissions.models
        self._base_model = base_model
        self._known: dict[str, ArtModel] = {}
        self._jobs: dict[str, JobEvents] = {}
        self._followers: set[asyncio.Task[None]] = set()

    async def create(self, http: Request) -> Response:
        request = await read(http, ServerlessModelRequest)
        model = ArtModel(
            name=request.name, project=request.project, entity=request.entity or ENTITY, base_model=request.base_model
        )
        model_id = f"model-{sha256(f'{model.project}/{model.name}'.encode()).hexdigest()[:16]}"
        self._models.register(model)
        await self._models.prepare(model)
        self._known[model_id] = model
        named = {"entity": model.entity, "project": model.project, "name": model.name}
        base_model = request.base_model or self._base_model
        return JSONResponse({"id": model_id, **named, "base_model": base_model, "run_id": None})

    async def delete(self, http: Request) -> Response:
        model_id = http.path_params["model_id"]
        await self._models.remove(self._model(model_id))
        self._known.pop(model_id, None)  # another request may have deleted it meanwhile
        return JSONResponse(None)

    async def checkpoints(self, http: Request) -> Response:
        model_id = http.path_params["model_id"]
        steps = self._models.steps(self._model(model_id))
        found = [{"id": f"{model_id}-{step}", "step": step, "metrics": {}} for step in steps]
        return _page(http, found if http.query_params.get("order", "desc") == "asc" else found[::-1])

    async def delete_checkpoints(self, http: Request) -> Response:
        model = self._model(http.path_params["model_id"])
        unwanted = set((await read(http, ServerlessDeleteRequest)).steps)
        gone = await self._models.delete(model, set(self._models.steps(model)) - unwanted)
        return JSONResponse({"deleted_count": len(gone), "not_found_steps": sorted(unwanted.difference(gone))})

    async def train(self, http: Request) -> Response:
        request = await read(http, ServerlessTrainRequest)
        config = ArtTrainConfig(learning_rate=request.experimental_config.learning_rate)
        call = await self._submissions.start(
            self._model(request.model_id), request.trajectory_groups, config, request.experimental_config
        )
        events = self._jobs[call.job_id] = JobEvents()
        if len(self._jobs) > MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]
        task = asyncio.create_task(events.follow(call))
        self._followers.add(task)  # a task without a reference may be collected
        task.add_done_callback(self._followers.discard)
        return JSONResponse({"id": call.job_id})

    async def train_sft(self, _: Request) -> Response:
        """Refuse what needs W&B: the client uploads the examples there, and sends their address."""
        raise ApiError(
            "train_sft is not available here: its examples are at Weights & Biases, which this server does not read. "
            "Imitate them with `nat finetune` and a dataset_traj_builder (docs/recipes/demonstrations.md), then train "
            "on with rewards",
            status=501,
        )

    async def events(self, http: Request) -> Response:
        job_id = http.path_params["job_id"]
        if job_id not in self._jobs:
            raise ApiError(f"no training job {job_id!r} ran here", status=404, param="job_id")
        return _page(http, self._jobs[job_id].events)

    def _model(self, model_id: str) -> ArtModel:
        if model_id not in self._known:
            raise ApiError(
                f"model {model_id!r} is not known here; create it with return_existing=true",
                status=404,
                param="model_id",
            )
        return self._known[model_id]


def _page(http: Request, items: Sequence[Json]) -> Response:
    """The items after the one with the id `after`, at most `limit`, as a page of OpenAI's cursor pagination."""
    after, ids = http.query_params.get("after"), [item["id"] for item in items]
    rest = items[0 if after not in ids else ids.index(after) + 1 :]
    page = rest[: int(http.query_params.get("limit", "100"))]
    return JSONResponse({"data": page, "has_more": len(rest) > len(page)})
