"""The routes of `nat gateway serve`: the gateway's key opens and closes rollouts, a rollout's key calls the model.

POST   /rollouts        a new rollout and its key
GET    /rollouts        the ids of the open rollouts
GET    /rollouts/{id}   its steps so far
DELETE /rollouts/{id}   its steps, and its end
"""

import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nat.builder.context import ContextState, RuntimeTypeEnum
from nat.capture.context import CapturePolicy, capturing
from nat.data_models.intermediate_step import IntermediateStep
from nat.gateway.access import Keyring, RolloutAccess
from nat.gateway.app import GatewayApp, key_of
from nat.gateway.dialects import chat
from nat.gateway.upstream import Upstream
from nat.http.asgi import EVENT_STREAM, Receive, Scope, Send, Sender, header, read_body
from nat.http.errors import ApiError, ClientDisconnected, from_validation
from nat.http.guards import same_key
from nat.rollout.step_lines import step_events

ROLLOUTS = "/rollouts"


class RolloutRequest(BaseModel):
    """The body of `POST /rollouts`."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[\w.#:-]{1,200}$")] | None = None
    """Id of the rollout; generated if left out."""
    seed: int | None = None
    """Each call derives its own seed from it."""
    logprobs: bool = True
    """Record the log probability of each sampled token."""
    token_ids: bool = True
    """Record the ids of prompt and answer."""


class _Open(NamedTuple):
    """One open rollout."""

    steps: list[IntermediateStep]
    stack: AsyncExitStack


class Rollouts:
    """The open rollouts by their id; the creator closes it with `aclosing`."""

    def __init__(self, keyring: Keyring, upstreams: Mapping[str, Upstream]) -> None:
        self._keyring = keyring
        self._upstreams = upstreams
        self._open: dict[str, _Open] = {}

    @property
    def ids(self) -> list[str]:
        return list(self._open)

    async def open(self, request: RolloutRequest, *, url: str) -> dict[str, str]:
        """Open a new rollout, and say by which URLs and key to call the model; ApiError if one with this id is open."""
        name = request.id or uuid.uuid4().hex
        if name in self._open:
            raise ApiError(f"the rollout {name!r} is open already", status=409)
        opened = self._open[name] = _Open([], AsyncExitStack())
        state = ContextState(workflow_run_id=name, rollout_seed=request.seed, runtime_type=RuntimeTypeEnum.RUN_OR_SERVE)
        state.intermediate_step_manager.subscribe(opened.steps.append)
        policy = CapturePolicy(logprobs=request.logprobs, token_ids=request.token_ids, seed=request.seed)
        with state.active(), capturing(policy):
            access = RolloutAccess(self._upstreams)
        key = await opened.stack.enter_async_context(self._keyring.opened(access))
        # Anthropic's clients add `/v1` themselves.
        return {"id": name, "key": key, "base_url": f"{url}/v1", "anthropic_base_url": url}

    def lines(self, name: str) -> bytes:
        """The steps so far, in the format of `nat serve`."""
        return step_events(self._find(name).steps)

    async def close(self, name: str) -> bytes:
        """End the rollout and return its steps."""
        closing = self._find(name)
        del self._open[name]  # so that it is closed only once
        await closing.stack.aclose()
        return step_events(closing.steps)

    async def aclose(self) -> None:
        for name in self.ids:
            await self.close(name)

    def _find(self, name: str) -> _Open:
        if name not in self._open:
            raise ApiError(f"there is no open rollout {name!r}", status=404)
        return self._open[name]


class RolloutRoutes:
    """The ASGI application: it handles the rollout routes, and passes all others to the gateway."""

    def __init__(self, gateway: GatewayApp, rollouts: Rollouts, *, api_key: str) -> None:
        self._gateway = gateway
        self._rollouts = rollouts
        self._key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, sender = scope["path"], Sender(send)
        if path != ROLLOUTS and not path.startswith(f"{ROLLOUTS}/"):
            await self._gateway(scope, receive, send)
            return
        try:
            await self._answer(scope, receive, sender)
        except ClientDisconnected:
            return
        except ApiError as error:
            await sender.json(*chat.error(error))

    async def _answer(self, scope: Scope, receive: Receive, sender: Sender) -> None:
        if not same_key(key_of(scope), self._key):
            raise ApiError("rollouts need the key of this gateway", status=401)
        method, name = scope["method"], scope["path"].removeprefix(ROLLOUTS).removeprefix("/")
        match method, name:
            case "POST", "":
                try:
                    request = RolloutRequest.model_validate_json(await read_body(receive) or b"{}")
                except ValidationError as error:
                    raise from_validation(error) from error
                url = f"{scope['scheme']}://{header(scope, b'host').decode('latin-1')}"
                await sender.json(201, await self._rollouts.open(request, url=url))
            case "GET", "":
                await sender.json(200, {"rollouts": self._rollouts.ids})
            case "GET", _:
                await sender.whole(200, self._rollouts.lines(name), EVENT_STREAM)
            case "DELETE", _ if name:
                await sender.whole(200, await self._rollouts.close(name), EVENT_STREAM)
            case _:
                raise ApiError(f"{method} {scope['path']}: rollouts are opened with POST {ROLLOUTS}", status=405)
