"""A client for the backend's training routes; every wait has a deadline."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from nat.errors import BackendError, BackendUnreachable, findings_of
from nat.http.client import DirectAsyncClient
from nat.secrets import excerpt
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.wire.json import json_text
from nat.wire.openai_requests import DetokenizeIds
from nat.wire.openai_responses import DetokenizedText, ErrorResponse
from nat.wire.serving import Health
from nat.wire.texts import TokenizeAnswer, TokenizeRequest
from nat.wire.training import (
    ExportedModel,
    ExportRequest,
    JobState,
    ResolvedTraining,
    SavedCheckpoint,
    TrainingConfig,
    TrainingJob,
)

_POLL_SECONDS = 20.0
_REQUEST_SECONDS = 30.0 + _POLL_SECONDS
_EXPORT_SECONDS = 600.0
_SHOWN_CHARS = 300
M = TypeVar("M", bound=BaseModel)


class BackendClient:
    """A client of one backend; tests pass a transport in."""

    def __init__(self, base_url: str, api_key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = DirectAsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"},
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def healthy(self) -> bool:
        """True if the backend answers with a success status."""
        try:
            response = await self._http.get("/health", timeout=5.0)
        except httpx.TransportError:
            return False
        return response.is_success

    async def health(self) -> Health:
        """The device and precision of the served model."""
        return _read(Health, await self._request("GET", "/health"))

    async def resolve(self, config: TrainingConfig) -> ResolvedTraining:
        """Ask which settings an update will use.

        Raises:
            BackendError: the algorithm is unknown or broken, or contradicts the settings.

        """
        body = config.model_dump_json(exclude_unset=True).encode()
        return _read(ResolvedTraining, await self._request("POST", "/v1/training/resolve", content=body))

    async def begin_phase(self, config: TrainingConfig) -> ResolvedTraining:
        """Begin anew with these settings on the current weights: optimizer state, schedule, and reference model."""
        body = config.model_dump_json(exclude_unset=True).encode()
        response = await self._request("POST", "/v1/training/phase", content=body, timeout=_EXPORT_SECONDS)
        return _read(ResolvedTraining, response)

    async def forecast(self, request: ForecastRequest) -> TrainingForecast:
        """Ask what a run would take on this backend; its last measured pass may end after `probe_seconds`."""
        body = request.model_dump_json(exclude_unset=True).encode()
        timeout = _REQUEST_SECONDS + 10 * request.probe_seconds
        return _read(
            TrainingForecast, await self._request("POST", "/v1/training/forecast", content=body, timeout=timeout)
        )

    async def tokenize(self, request: TokenizeRequest) -> TokenizeAnswer:
        """Turn conversations into rows.

        Raises:
            BackendError: the backend's model has no chat template, or the request is too large.

        """
        body = request.model_dump_json(exclude_unset=True).encode()
        return _read(TokenizeAnswer, await self._request("POST", "/v1/training/tokenize", content=body))

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of these ids, special tokens included."""
        body = DetokenizeIds(tokens=list(token_ids)).model_dump_json(exclude_none=True).encode()
        return _read(DetokenizedText, await self._request("POST", "/detokenize", content=body)).prompt

    async def submit(self, job: TrainingJob) -> JobState:
        """Submit a job; a job that is submitted again under the same id is trained once."""
        body = json_text(job, exclude_unset=True).encode()
        response = await self._request("POST", "/v1/training/jobs", content=body)
        return _read(JobState, response)

    async def job(self, job_id: str, *, wait: float = 0.0) -> JobState:
        """The state of a job, after at most `wait` seconds if it is not final before."""
        response = await self._request("GET", f"/v1/training/jobs/{job_id}", params={"wait": min(wait, _POLL_SECONDS)})
        return _read(JobState, response)

    async def cancel(self, job_id: str) -> JobState:
        response = await self._request("POST", f"/v1/training/jobs/{job_id}/cancel")
        return _read(JobState, response)

    async def export(self, name: str) -> ExportedModel:
        """Write the current weights as a Hugging Face directory `name` in the backend's output folder."""
        request = ExportRequest(name=name).model_dump_json()
        response = await self._request("POST", "/v1/training/export", content=request.encode(), timeout=_EXPORT_SECONDS)
        return _read(ExportedModel, response)

    async def keep_best(self) -> SavedCheckpoint:
        """Keep a checkpoint of the current weights as the best so far."""
        response = await self._request("POST", "/v1/training/best", timeout=_EXPORT_SECONDS)
        return _read(SavedCheckpoint, response)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        params: dict[str, float] | None = None,
        timeout: float = _REQUEST_SECONDS,  # noqa: ASYNC109 - handed on to the HTTP client, which enforces it
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if content is not None else None
        try:
            response = await self._http.request(
                method, path, content=content, params=params, headers=headers, timeout=timeout
            )
        except httpx.TransportError as error:
            raise BackendUnreachable(
                f"the backend at {self._http.base_url} did not answer {method} {path}: {error!r}",
                hint="look at the end of its log; if it runs elsewhere, check the address and the network",
            ) from error
        if not response.is_success:
            reason = _reason(response)
            if response.status_code == HTTPStatus.BAD_REQUEST:
                raise BackendError(reason)  # a wrong setting: the message names it, with the remedy
            raise BackendError(
                f"the backend answered {method} {path} with {response.status_code}: {reason}",
                hint="look at the end of the backend's log",
            )
        return response


def _reason(response: httpx.Response) -> str:
    """The message of an error response; the whole body if it is not in the backend's format."""
    try:
        return ErrorResponse.model_validate_json(response.content).error.message
    except ValidationError:
        return excerpt(response.text, 2000)


def _read(model: type[M], response: httpx.Response) -> M:
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        request = f"{response.request.method} {response.request.url}"
        seen = excerpt(repr(response.text), _SHOWN_CHARS)
        raise BackendError(
            f"the answer to {request} is no {model.__name__} ({findings_of(error)[0]}): {seen}",
            hint="the server there is not a backend of this version; it may be a proxy",
        ) from error
