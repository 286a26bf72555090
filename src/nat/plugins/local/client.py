"""A client for the backend's training routes; every wait has a deadline."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel

from nat.errors import BackendError
from nat.http.service import ServiceClient, reason_of
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.wire.json import json_text
from nat.wire.openai_api import DetokenizedText, DetokenizeIds
from nat.wire.serving import Health
from nat.wire.training import (
    ExportedModel,
    ExportRequest,
    JobState,
    ResolvedTraining,
    SavedCheckpoint,
    SavedJobs,
    TokenizeAnswer,
    TokenizeRequest,
    TrainingConfig,
    TrainingJob,
)

_POLL_SECONDS = 20.0
_REQUEST_SECONDS = 300.0
"""For an answer. One that never comes is from a backend that hangs; one that has died is noticed at once."""
_EXPORT_SECONDS = 600.0
M = TypeVar("M", bound=BaseModel)


class BackendClient(ServiceClient):
    """A client of one backend; tests pass a transport in."""

    def __init__(self, base_url: str, key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(base_url, key, name="the backend", timeout=_REQUEST_SECONDS, transport=transport)

    def hint(self, status: int | None) -> str:
        elsewhere = "; if it runs elsewhere, check the address and the network" if status is None else ""
        return f"look at the end of the backend's log{elsewhere}"

    def refusal(self, response: httpx.Response) -> BackendError:
        if response.status_code == HTTPStatus.BAD_REQUEST:
            return BackendError(reason_of(response))  # a wrong setting: the message names it, with the remedy
        return super().refusal(response)

    async def healthy(self) -> bool:
        """True if the backend answers with a success status."""
        try:
            await self.send("GET", "/health")
        except BackendError:
            return False
        return True

    async def health(self) -> Health:
        """The device and precision of the served model."""
        return await self._read(Health, "GET", "/health")

    async def resolve(self, config: TrainingConfig) -> ResolvedTraining:
        """Ask which settings an update will use.

        Raises:
            BackendError: the algorithm is unknown or broken, or contradicts the settings.

        """
        return await self._post(ResolvedTraining, "/v1/training/resolve", config)

    async def begin_phase(self, config: TrainingConfig) -> ResolvedTraining:
        """Begin anew with these settings on the current weights: optimizer state, schedule, and reference model."""
        return await self._post(ResolvedTraining, "/v1/training/phase", config, timeout=_EXPORT_SECONDS)

    async def forecast(self, request: ForecastRequest) -> TrainingForecast:
        """Ask what a run would take on this backend."""
        return await self._post(TrainingForecast, "/v1/training/forecast", request)

    async def tokenize(self, request: TokenizeRequest) -> TokenizeAnswer:
        """Turn conversations into rows.

        Raises:
            BackendError: the backend's model has no chat template, or the request is too large.

        """
        return await self._post(TokenizeAnswer, "/v1/training/tokenize", request)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of these ids, special tokens included."""
        return (await self._post(DetokenizedText, "/detokenize", DetokenizeIds(tokens=list(token_ids)))).prompt

    async def submit(self, job: TrainingJob) -> JobState:
        """Submit a job; a job that is submitted again under the same id is trained once."""
        return await self._post(JobState, "/v1/training/jobs", job)

    async def job(self, job_id: str, *, wait: float = 0.0) -> JobState:
        """The state of a job, after at most `wait` seconds if it is not final before."""
        params = {"wait": min(wait, _POLL_SECONDS)}
        return await self._read(JobState, "GET", f"/v1/training/jobs/{job_id}", params=params)

    async def saved(self) -> SavedJobs:
        """Up to which job the checkpoints have the weights."""
        return await self._read(SavedJobs, "GET", "/v1/training/saved")

    async def cancel(self, job_id: str) -> JobState:
        return await self._post(JobState, f"/v1/training/jobs/{job_id}/cancel")

    async def export(self, name: str) -> ExportedModel:
        """Write the current weights as a Hugging Face directory `name` in the backend's output folder."""
        request = ExportRequest(name=name)
        return await self._post(ExportedModel, "/v1/training/export", request, timeout=_EXPORT_SECONDS)

    async def keep_best(self) -> SavedCheckpoint:
        """Keep a checkpoint of the current weights as the best so far."""
        return await self._post(SavedCheckpoint, "/v1/training/best", timeout=_EXPORT_SECONDS)

    async def _post(
        self,
        answer: type[M],
        path: str,
        body: BaseModel | None = None,
        *,
        timeout: float = _REQUEST_SECONDS,  # noqa: ASYNC109 - handed on to the HTTP client, which enforces it
    ) -> M:
        """The answer to a body, of which only the fields that are set are sent."""
        content = None if body is None else json_text(body, exclude_unset=True).encode()
        headers = None if body is None else {"Content-Type": "application/json"}
        return await self._read(answer, "POST", path, content=content, headers=headers, timeout=timeout)

    async def _read(self, answer: type[M], method: str, path: str, **options: Any) -> M:
        return await self.read(answer, method, path, wanted=f"a {answer.__name__}", **options)
