"""The routes of an ART server as typed calls; each error says where it happened and what to do.

Works with every server from 0.4 on: where a version lacks a route, the older one is used.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import ValidationError

from nat.art.wire import JOB_ID_HEADER, SERVING_HEADER, Serving
from nat.errors import BackendError, BackendUnreachable, TrainingFailed, describe_error
from nat.http.client import bearer
from nat.http.service import Json, ServiceClient
from nat.secrets import excerpt
from nat.wire.hosts import is_everywhere
from nat.wire.training import JobState

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_LOAD_SECONDS = 600.0
_HINTS = {
    401: "set `backend.api_key` to the key that the server was started with",
    403: "set `backend.api_key` to the key that the server was started with",
    404: "check that `ip` and `port` lead to an ART server",
    409: "another run trains this model; wait for it, or choose another `backend.name`",
}


@dataclass(frozen=True)
class Inference:
    """The inference server's URL and key."""

    base_url: str
    key: str
    serving: Serving | None = None
    """What our server says of itself; other servers load the base model that is requested."""


class ArtClient(ServiceClient):
    """One ART server. Tests pass a transport."""

    def __init__(self, base_url: str, key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(
            base_url,
            key,
            name="the ART server",
            silent="Failed to connect to ART backend.",
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            # Connections are not reused: a request on a closed one fails, and a batch is not sent twice.
            limits=httpx.Limits(max_keepalive_connections=0),
            transport=transport,
        )

    def hint(self, status: int | None) -> str:
        if status is None:
            return (
                "start the server (`nat backend serve` with --inference_port, or ART's own), and check `ip` and "
                f"`port` of the trainer adapter's `backend`; try `curl {self.base_url}/healthcheck`"
            )
        return _HINTS.get(status) or super().hint(status)

    async def check_health(self) -> None:
        """Raise BackendUnreachable unless the control routes answer with a status of success."""
        try:
            await self.send("GET", "/healthcheck")
        except BackendUnreachable:
            raise
        except BackendError as error:
            raise BackendUnreachable(f"Failed to connect to ART backend. {error.message}", hint=error.hint) from error

    async def check_trains(self) -> None:
        """Raise BackendError if the server has no training route: status 405 means that it has, for another method."""
        response = await self.send("GET", "/_train_model", accept=range(400, 600))
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise BackendError(
                f"the ART server at {self.base_url} cannot train over HTTP: it has no route /_train_model",
                hint="ART's own server lost the route in 0.5.18; use `nat backend serve`, or `art run` of an older one",
            )

    async def register(self, model: Json) -> None:
        await self.send("POST", "/register", json=model)

    async def prepare(self, body: Json) -> Inference:
        """Load the model and begin to serve it, which may take minutes the first time."""
        timeout = httpx.Timeout(_LOAD_SECONDS, connect=_CONNECT_SECONDS)
        response = await self.send("POST", "/_prepare_backend_for_training", json=body, timeout=timeout)
        url, key = self.parsed(tuple[str, str], response, wanted="the URL and the key of its inference")
        try:
            serving = Serving.model_validate_json(response.headers.get(SERVING_HEADER, ""))
        except ValidationError:
            serving = None  # it is ART's own
        return Inference(self._reachable(url), key, serving)

    async def step(self, model: Json) -> int:
        """How often the model was trained."""
        return await self.read(int, "POST", "/_get_step", wanted="a step", json=model)

    async def delete_checkpoints(self, model: Json, *, keep: Sequence[int]) -> None:
        """Delete all checkpoints but these; servers up to 0.5.7 keep the newest and the best instead."""
        body = {"model": model, "steps_to_keep": list(keep)}
        response = await self.send("POST", "/_delete_checkpoint_files", json=body, accept=[HTTPStatus.NOT_FOUND])
        if response.status_code == HTTPStatus.NOT_FOUND:
            await self.send("POST", "/_delete_checkpoints", json=model)

    async def served_names(self, inference: Inference) -> list[str]:
        """The names that the inference server answers to."""
        return await self.served_models(f"{inference.base_url}/models", headers=bearer(inference.key))

    async def train(self, body: bytes) -> AsyncGenerator[Json, None]:
        """The metrics of each gradient step as soon as it is done; ends when the new weights are served.

        Raises:
            BackendError: the server refused the batch before it began.
            TrainingFailed: training began and failed.

        """
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        headers = {"Content-Type": "application/json"}
        response = await self.send("POST", "/_train_model", content=body, headers=headers, timeout=timeout, stream=True)
        try:
            async for line in response.aiter_lines():
                metrics = json.loads(line) if line.startswith("{") else {}
                if line.strip() and (not metrics or "error" in metrics):
                    raise TrainingFailed(f"a line of the training stream holds no metrics: {excerpt(line, 200)}")
                if metrics:
                    yield metrics
        except httpx.TransportError as error:
            raise await self._broken(response.headers.get(JOB_ID_HEADER), error) from error
        finally:
            await response.aclose()

    async def _broken(self, job_id: str | None, error: httpx.TransportError) -> TrainingFailed:
        """The reason for a broken stream, from the server or else from the connection."""
        with suppress(BackendError):  # an error of this request would hide the broken stream
            if job_id is not None:
                state = await self.read(JobState, "GET", f"/jobs/{job_id}", wanted="a job")
                if state.failure is not None:
                    return TrainingFailed(state.failure.message, hint=state.failure.hint)
        return TrainingFailed(
            f"the server at {self.base_url} broke the stream off: {describe_error(error)}",
            hint="the reason is in the server's log; ART's own servers do not send it over HTTP",
        )

    def _reachable(self, url: str) -> str:
        """The URL for this client: if the server listens on all addresses, with the configured host."""
        parts = urlsplit(url)
        if not is_everywhere(parts.hostname or ""):
            return url.rstrip("/")
        host = urlsplit(self.base_url).netloc.rpartition(":")[0]
        netloc = host if parts.port is None else f"{host}:{parts.port}"
        return urlunsplit(parts._replace(netloc=netloc)).rstrip("/")
