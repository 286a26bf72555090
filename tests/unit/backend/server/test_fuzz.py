"""Any request to the backend gets a response or an error with its cause."""

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.json_bodies import bodies, check_answer, with_fields
from nat.backend.algorithms.registry import resolve
from nat.backend.forecast import Forecaster
from nat.backend.server.app import inference_router
from nat.backend.server.service import Service
from nat.backend.server.training import training_router
from nat.sizing.forecast import ForecastRequest
from nat.wire.openai_requests import ChatCompletionRequest, CompletionRequest, DetokenizeIds, TokenizeText
from nat.wire.serving import ServeOptions
from nat.wire.texts import TokenizeRequest
from nat.wire.training import ExportedModel, ExportRequest, JobState, JobStatus, TrainingConfig, TrainingJob

FEW = {"enum": [1, 2]}
SAMPLING = {"model": {"enum": ["tiny"]}, "n": FEW, "max_tokens": FEW}
SCHEMAS = {
    "/v1/chat/completions": with_fields(
        ChatCompletionRequest.model_json_schema(), **SAMPLING, max_completion_tokens=FEW
    ),
    "/v1/completions": with_fields(CompletionRequest.model_json_schema(), **SAMPLING),
    "/tokenize": TokenizeText.model_json_schema(),
    "/detokenize": DetokenizeIds.model_json_schema(),
    "/v1/training/jobs": TrainingJob.model_json_schema(),
    "/v1/training/resolve": TrainingConfig.model_json_schema(),
    "/v1/training/phase": TrainingConfig.model_json_schema(),
    "/v1/training/forecast": ForecastRequest.model_json_schema(),
    "/v1/training/export": ExportRequest.model_json_schema(),
    "/v1/training/tokenize": TokenizeRequest.model_json_schema(),
}
OPTIONS = ServeOptions(model=Path("tiny"))
fuzzed = settings(max_examples=40, suppress_health_check=list(HealthCheck))
"""All examples of a test share one client."""


class Jobs:
    """A backend that accepts every job."""

    def __init__(self, loaded):
        self.loaded = loaded

    def submit(self, job):
        return JobState(id=job.id, status=JobStatus.PENDING)

    async def wait(self, job_id, seconds):
        return None

    async def begin_phase(self, config):
        return resolve(config).report()

    async def export(self, name):
        return ExportedModel(path=name, policy_version="tiny@4")


@pytest.fixture
async def fuzz_client(connect, worker):
    routers = [training_router(Jobs(worker.loaded), Forecaster(OPTIONS, worker))]
    async with connect(worker, extra_routers=routers) as client:
        yield client


def test_all_routes_that_take_a_body_are_tried(worker):
    """The fuzz test covers every route with a body, new ones included."""
    routes = [*inference_router(Service(worker)).routes, *training_router(None, Forecaster(OPTIONS, worker)).routes]
    without_body = {"/v1/training/jobs/{job_id}/cancel", "/v1/training/best"}
    assert {route.path for route in routes if "POST" in route.methods} == SCHEMAS.keys() | without_body


@pytest.mark.parametrize("path", SCHEMAS)
@fuzzed
@given(data=st.data())
async def test_no_body_makes_the_backend_fail(fuzz_client, path, data):
    """The server answers the next request after any body."""
    check_answer(await fuzz_client.post(path, content=data.draw(bodies(SCHEMAS[path]))))
    assert (await fuzz_client.get("/health")).status_code == 200


@fuzzed
@given(job=st.text(min_size=1, max_size=8), wait=st.text(max_size=8) | st.floats().map(str))
async def test_no_query_makes_the_backend_fail(fuzz_client, job, wait):
    """Any job id and any number of seconds in a URL gets an answer or an error."""
    check_answer(await fuzz_client.get(f"/v1/training/jobs/{quote(job, safe='')}", params={"wait": wait}))
