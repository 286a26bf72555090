"""Routes of training: submit a job, watch it, cancel it, export the model."""

import asyncio
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from nat.backend.forecast import Forecaster
from nat.backend.server.bodies import json_answer, read
from nat.backend.texts import tokenized
from nat.backend.training.batch import batch_findings
from nat.backend.training.jobs import TrainingJobs
from nat.http.errors import ApiError, ClientDisconnected, first_of
from nat.sizing.forecast import ForecastRequest
from nat.wire.training import ExportRequest, JobState, TokenizeAnswer, TokenizeRequest, TrainingConfig, TrainingJob

MAX_WAIT_SECONDS = 60.0


def training_router(jobs: TrainingJobs | None, forecaster: Forecaster) -> APIRouter:
    """The routes on `jobs` and `forecaster`; without jobs their routes answer that this backend only serves."""
    router = APIRouter()
    routes = _TrainingRoutes(jobs, forecaster)
    router.add_route("/v1/training/jobs", routes.submit, methods=["POST"])
    router.add_route("/v1/training/saved", routes.saved, methods=["GET"])
    router.add_route("/v1/training/jobs/{job_id}", routes.state, methods=["GET"])
    router.add_route("/v1/training/jobs/{job_id}/cancel", routes.cancel, methods=["POST"])
    router.add_route("/v1/training/tokenize", routes.tokenize, methods=["POST"])
    router.add_route("/v1/training/resolve", routes.resolve, methods=["POST"])
    router.add_route("/v1/training/phase", routes.begin_phase, methods=["POST"])
    router.add_route("/v1/training/forecast", routes.forecast, methods=["POST"])
    router.add_route("/v1/training/export", routes.export, methods=["POST"])
    router.add_route("/v1/training/best", routes.keep_best, methods=["POST"])
    return router


class _TrainingRoutes:
    """The handlers, which call `TrainingJobs`."""

    def __init__(self, jobs: TrainingJobs | None, forecaster: Forecaster) -> None:
        self._open_jobs = jobs
        self._forecaster = forecaster

    async def submit(self, http: Request) -> Response:
        jobs = self._jobs
        job = await read(http, TrainingJob)
        findings = await asyncio.to_thread(batch_findings, job, jobs.loaded)
        if findings:
            raise ApiError(first_of(findings), status=422, param=findings[0].partition(":")[0])
        try:
            return json_answer(await asyncio.to_thread(jobs.submit, job))
        except ValueError as error:
            raise ApiError(str(error), status=409, param="id") from error

    async def state(self, http: Request) -> Response:
        job_id, wait = http.path_params["job_id"], float(http.query_params.get("wait", 0))
        return json_answer(_known(job_id, await self._jobs.wait(job_id, min(wait, MAX_WAIT_SECONDS))))

    async def saved(self, _: Request) -> Response:
        return json_answer(await asyncio.to_thread(self._jobs.saved))

    async def cancel(self, http: Request) -> Response:
        job_id = http.path_params["job_id"]
        return json_answer(_known(job_id, self._jobs.cancel(job_id)))

    async def resolve(self, http: Request) -> Response:
        """Resolve settings, also in a backend that only serves: `--dry_run` and `nat probe` check them there."""
        config = await read(http, TrainingConfig)
        return json_answer((await asyncio.to_thread(self._forecaster.resolve, config)).report())

    async def begin_phase(self, http: Request) -> Response:
        return json_answer(await self._jobs.begin_phase(await read(http, TrainingConfig)))

    async def forecast(self, http: Request) -> Response:
        request = await read(http, ForecastRequest)
        return json_answer(await asyncio.to_thread(self._forecaster.forecast, request))

    async def tokenize(self, http: Request) -> Response:
        """Turn conversations into the rows of a job."""
        request = await read(http, TokenizeRequest)
        loaded, found = self._forecaster.loaded, []
        stops, longest = loaded.eos_token_ids, loaded.max_seq_length
        for conversation in request.conversations:
            if await http.is_disconnected():
                raise ClientDisconnected
            rows = partial(tokenized, conversation, loaded.tokenizer, stops=stops, longest=longest)
            found.append(await asyncio.to_thread(rows))
        return json_answer(TokenizeAnswer(conversations=found))

    async def export(self, http: Request) -> Response:
        jobs = self._jobs
        return json_answer(await jobs.export((await read(http, ExportRequest)).name))

    async def keep_best(self, _: Request) -> Response:
        return json_answer(await self._jobs.keep_best())

    @property
    def _jobs(self) -> TrainingJobs:
        if self._open_jobs is None:
            raise ApiError("this backend was started without --output_dir, so it serves only", status=409)
        return self._open_jobs


def _known(job_id: str, state: JobState | None) -> JobState:
    if state is None:
        raise ApiError(f"no job {job_id!r} was submitted here", status=404, param="job_id")
    return state
