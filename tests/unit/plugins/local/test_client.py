"""Typed calls of the backend, against a scripted transport."""

import httpx
import pytest

from fakes.training_rows import row_of
from nat.errors import BackendError, BackendUnreachable
from nat.plugins.local.client import BackendClient
from nat.wire.training import JobStatus, TrainingConfig, TrainingGroup, TrainingJob, TrainingRollout

JOB = TrainingJob(
    id="job-1",
    groups=[TrainingGroup(id="a", rollouts=[TrainingRollout(reward=1.0, rows=[row_of([1, 2], [None, -0.5])])])],
)


def client(handler: httpx.MockTransport) -> BackendClient:
    return BackendClient("http://backend", "key", transport=handler)


async def test_submit_sends_the_job_with_the_key() -> None:
    """Every request has the bearer key, and the job arrives unchanged."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer key"
        assert TrainingJob.model_validate_json(request.content) == JOB
        return httpx.Response(202, json={"id": "job-1", "status": "pending"})

    async with client(httpx.MockTransport(answer)) as backend:
        assert (await backend.submit(JOB)).status is JobStatus.PENDING


async def test_a_wrong_setting_is_explained_in_the_backends_words() -> None:
    """Its message is for the user as it is; the route and the status add nothing."""
    error = {"error": {"message": "training.algorithm: 'rlo' is unknown", "type": "x"}, "detail": "same"}
    async with client(httpx.MockTransport(lambda _: httpx.Response(400, json=error))) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.resolve(TrainingConfig(algorithm="rlo"))
    assert str(caught.value) == "training.algorithm: 'rlo' is unknown"


async def test_no_answer_is_unreachable() -> None:
    """A transport failure differs from an error response."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async with client(httpx.MockTransport(fail)) as backend:
        with pytest.raises(BackendUnreachable, match="refused"):
            await backend.job("job-1")
        assert not await backend.healthy()


@pytest.mark.parametrize("body", [b"<html>It works!</html>", b'{"status": "fine"}', b"", b"\xff", b"[1e400]"])
@pytest.mark.parametrize("call", ["submit", "job", "cancel", "export", "keep_best"])
async def test_an_invalid_answer_is_an_error_of_the_backend(call: str, body: bytes) -> None:
    """The error has the request, the reason and the answer."""
    async with client(httpx.MockTransport(lambda _: httpx.Response(200, content=body))) as backend:
        with pytest.raises(BackendError, match=r"the answer to .* is not a (JobState|ExportedModel|SavedCheckpoint) "):
            await getattr(backend, call)(*{"submit": [JOB], "keep_best": []}.get(call, ["job-1"]))
