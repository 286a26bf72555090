"""The routes of an ART server as typed calls; each error says where it happened and what to do.

Works with every server from 0.4 on: where a version lacks a route, the older one is used.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import BaseModel, ValidationError

from nat.art.wire import JOB_ID_HEADER, SERVING_HEADER, Serving
from nat.errors import BackendError, BackendUnreachable, TrainingFailed, describe_error
from nat.http.client import DirectAsyncClient, json_of
from nat.secrets import excerpt
from nat.wire.hosts import is_everywhere
from nat.wire.training import JobState

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_LOAD_SECONDS = 600.0
_ERROR_CHARS = 2000
_HINTS = {
    401: "set `backend.api_key` to the key that the server was started with",
    403: "set `backend.api_key` to the key that the server was started with",
    404: "check that `ip` and `port` lead to an ART server",
    409: "another run trains this model; wait for it, or choose another `backend.name`",
}

Json = dict[str, Any]


class RouteMissing(BackendError):
    """The server's version lacks a route."""


@dataclass(frozen=True)
class Inference:
    """The inference server's URL and key."""

    base_url: str
    api_key: str
    serving: Serving | None = None
    """What our server says of itself; other servers load the base model that is requested."""


class ArtModelList(BaseModel):
    """GET /v1/models, with the fields that the client uses."""

    class Card(BaseModel):
        """One name that the server answers to."""

        id: str

    data: list[Card]


class ArtClient:
    """One ART server. Tests pass a transport."""

    def __init__(self, base_url: str, api_key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.base_url = base_url
        self._api_key = api_key
        # Connections are not reused: a request on a closed one fails, and a batch is not sent twice.
        self._http = DirectAsyncClient(transport=transport, limits=httpx.Limits(max_keepalive_connections=0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def check_health(self) -> None:
        """Raise BackendUnreachable unless the control routes answer with a status of success."""
        try:
            await self._get(f"{self.base_url}/healthcheck", self._api_key)
        except BackendUnreachable:
            raise
        except BackendError as error:
            raise BackendUnreachable(f"Failed to connect to ART backend. {error.message}", hint=error.hint) from error

    async def check_trains(self) -> None:
        """Raise BackendError if the server has no training route: status 405 means that it has, for another method."""
        request = self._request("GET", f"{self.base_url}/_train_model", self._api_key, read=_ANSWER_SECONDS)
        response = await self._response(request)
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise BackendError(
                f"the ART server at {self.base_url} cannot train over HTTP: it has no route /_train_model",
                hint="ART's own server lost the route in 0.5.18; use `nat backend serve`, or `art run` of an older one",
            )

    async def register(self, model: Json) -> None:
        await self._post("/register", model)

    async def prepare(self, body: Json) -> Inference:
        """Load the model and begin to serve it, which may take minutes the first time."""
        response = await self._post("/_prepare_backend_for_training", body, read=_LOAD_SECONDS)
        match json_of(response):
            case [str(url), str(key)]:
                return Inference(self._reachable(url), key, _serving(response))
        raise _unexpected(response, wanted="the URL and the key of its inference")

    async def step(self, model: Json) -> int:
        """How often the model was trained."""
        response = await self._post("/_get_step", model)
        match json_of(response):
            case int(step):
                return step
        raise _unexpected(response, wanted="a step")

    async def delete_checkpoints(self, model: Json, *, keep: Sequence[int]) -> None:
        """Delete all checkpoints but these; servers up to 0.5.7 keep the newest and the best instead."""
        try:
            await self._post("/_delete_checkpoint_files", {"model": model, "steps_to_keep": list(keep)})
        except RouteMissing:
            await self._post("/_delete_checkpoints", model)

    async def served_names(self, inference: Inference) -> list[str]:
        """The names that the inference server answers to."""
        response = await self._get(f"{inference.base_url}/models", inference.api_key)
        try:
            return [card.id for card in ArtModelList.model_validate_json(response.content).data]
        except ValidationError as error:
            raise _unexpected(response, wanted="a list of models") from error

    async def train(self, body: bytes) -> AsyncGenerator[Json, None]:
        """The metrics of each gradient step as soon as it is done; ends when the new weights are served.

        Raises:
            BackendError: the server refused the batch before it began.
            TrainingFailed: training began and failed.

        """
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        headers = {**_bearer(self._api_key), "Content-Type": "application/json"}
        request = self._http.build_request(
            "POST", f"{self.base_url}/_train_model", content=body, headers=headers, timeout=timeout
        )
        response = await self._response(request, stream=True)
        try:
            if not response.is_success:
                await response.aread()
                _check_status(response)
            async for line in response.aiter_lines():
                if line.strip():
                    yield _metrics(line)
        except httpx.TransportError as error:
            raise await self._broken(response.headers.get(JOB_ID_HEADER), error) from error
        finally:
            await response.aclose()

    async def _broken(self, job_id: str | None, error: httpx.TransportError) -> TrainingFailed:
        """The reason for a broken stream, from the server or else from the connection."""
        state = None if job_id is None else await self._job(job_id)
        if state is not None and state.failure is not None:
            return TrainingFailed(state.failure.message, hint=state.failure.hint)
        return TrainingFailed(
            f"the server at {self.base_url} broke the stream off: {describe_error(error)}",
            hint="the reason is in the server's log; ART's own servers do not send it over HTTP",
        )

    async def _job(self, job_id: str) -> JobState | None:
        try:
            response = await self._get(f"{self.base_url}/jobs/{job_id}", self._api_key)
            return JobState.model_validate_json(response.content)
        except (BackendError, ValidationError):
            return None  # an error of this request would hide the broken stream

    async def _get(self, url: str, api_key: str) -> httpx.Response:
        return await self._send(self._request("GET", url, api_key, read=_ANSWER_SECONDS))

    async def _post(self, path: str, body: Json, *, read: float = _ANSWER_SECONDS) -> httpx.Response:
        return await self._send(self._request("POST", f"{self.base_url}{path}", self._api_key, body=body, read=read))

    def _request(self, method: str, url: str, api_key: str, *, body: Json | None = None, read: float) -> httpx.Request:
        timeout = httpx.Timeout(read, connect=_CONNECT_SECONDS)
        return self._http.build_request(method, url, json=body, headers=_bearer(api_key), timeout=timeout)

    async def _send(self, request: httpx.Request) -> httpx.Response:
        response = await self._response(request)
        _check_status(response)
        return response

    async def _response(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        try:
            return await self._http.send(request, stream=stream)
        except httpx.TransportError as error:
            raise BackendUnreachable(
                f"Failed to connect to ART backend. {request.method} {request.url}: {describe_error(error)}",
                hint="start the server (`nat backend serve` with --inference_port, or ART's own), and check `ip` and "
                f"`port` of the trainer adapter's `backend`; try `curl {self.base_url}/healthcheck`",
            ) from error

    def _reachable(self, url: str) -> str:
        """The URL for this client: if the server listens on all addresses, with the configured host."""
        parts = urlsplit(url)
        if not is_everywhere(parts.hostname or ""):
            return url.rstrip("/")
        host = urlsplit(self.base_url).netloc.rpartition(":")[0]
        netloc = host if parts.port is None else f"{host}:{parts.port}"
        return urlunsplit(parts._replace(netloc=netloc)).rstrip("/")


def _bearer(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"}


def _check_status(response: httpx.Response) -> None:
    """Raise unless the status is one of success."""
    if response.is_success:
        return
    kind = RouteMissing if response.status_code == HTTPStatus.NOT_FOUND else BackendError
    request = response.request
    raise kind(
        f"the ART server answered {request.method} {request.url} with {response.status_code}: {_detail(response)}",
        hint=_HINTS.get(response.status_code, "the reason is in this answer, or in the server's log"),
    )


def _unexpected(response: httpx.Response, *, wanted: str) -> BackendError:
    """The error for an answer with a status of success that no ART server gives."""
    return BackendError(
        f"{response.request.url} should have given {wanted}, but it answered "
        f"{excerpt(repr(response.text), _ERROR_CHARS)}",
        hint="check that an ART server listens there, and nothing else",
    )


def _serving(response: httpx.Response) -> Serving | None:
    try:
        return Serving.model_validate_json(response.headers.get(SERVING_HEADER, ""))
    except ValidationError:
        return None


def _detail(response: httpx.Response) -> str:
    """The server's error message in ART's shape, or else the body."""
    answer = json_of(response)
    detail = answer.get("detail") if isinstance(answer, dict) else None
    return detail if isinstance(detail, str) else excerpt(response.text, _ERROR_CHARS)


def _metrics(line: str) -> Json:
    """One line of the stream."""
    try:
        metrics = json.loads(line)
    except ValueError:
        metrics = None
    if not isinstance(metrics, dict):
        raise TrainingFailed(f"a line of the training stream holds no metrics: {excerpt(repr(line), 200)}")
    if "error" in metrics:
        raise TrainingFailed(f"the server reported an error: {metrics['error']}")
    return metrics
