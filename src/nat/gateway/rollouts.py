"""Rollouts that are opened and closed over HTTP, for a service that is always up."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from nat.builder.context import ContextState, RuntimeTypeEnum
from nat.capture.policy import CapturePolicy, capturing
from nat.data_models.intermediate_step import IntermediateStep
from nat.gateway.access import RolloutAccess
from nat.gateway.keys import Keyring
from nat.gateway.refusal import Refusal
from nat.gateway.upstream import Upstream
from nat.rollout.step_lines import StepEncoder


class RolloutWanted(BaseModel):
    """The body of `POST /rollouts`."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[\w.#:-]{1,200}$")] | None = None
    """A name for it, made up if left out."""
    seed: int | None = None
    """From which each call gets a seed of its own."""
    logprobs: bool = True
    """Record the log probability of each sampled token."""
    token_ids: bool = True
    """Record the ids of prompt and answer."""


class RolloutOpened(BaseModel):
    """Its answer: what the service is to be given."""

    id: str
    key: str
    base_url: str
    """For OpenAI's clients."""
    anthropic_base_url: str
    """For Anthropic's clients, which add `/v1` themselves."""


class _Open:
    """One open rollout."""

    def __init__(self) -> None:
        self.steps: list[IntermediateStep] = []
        self.stack = AsyncExitStack()


class Rollouts:
    """Those that are open now, by their id; whoever opens this closes it (`aclosing`)."""

    def __init__(self, keyring: Keyring, upstreams: Mapping[str, Upstream]) -> None:
        self._keyring = keyring
        self._upstreams = upstreams
        self._open: dict[str, _Open] = {}

    @property
    def ids(self) -> list[str]:
        return list(self._open)

    async def open(self, wanted: RolloutWanted, *, url: str) -> RolloutOpened:
        """A new rollout; Refusal if one with this id is open."""
        name = wanted.id or uuid.uuid4().hex
        if name in self._open:
            raise Refusal(409, f"the rollout {name!r} is open already")
        opened = self._open[name] = _Open()
        context = _inside(name, wanted, opened.steps)
        key = await opened.stack.enter_async_context(self._keyring.opened(RolloutAccess(self._upstreams, context)))
        return RolloutOpened(id=name, key=key, base_url=f"{url}/v1", anthropic_base_url=url)

    def lines(self, name: str) -> bytes:
        """The steps until now, as `nat serve` sends them."""
        return _lines(self._find(name).steps)

    async def close(self, name: str) -> bytes:
        """End the rollout; its steps, for the last time."""
        closing = self._find(name)
        del self._open[name]  # before anybody else can close it, too
        await closing.stack.aclose()
        return _lines(closing.steps)

    async def aclose(self) -> None:
        for name in self.ids:
            await self.close(name)

    def _find(self, name: str) -> _Open:
        try:
            return self._open[name]
        except KeyError:
            raise Refusal(404, f"there is no open rollout {name!r}") from None


def _lines(steps: Sequence[IntermediateStep]) -> bytes:
    encoder = StepEncoder()
    return b"".join([*map(encoder.encode, steps), encoder.rest()])


def _inside(name: str, wanted: RolloutWanted, steps: list[IntermediateStep]) -> Context:
    """The context of a rollout whose steps go into the list."""
    state = ContextState(workflow_run_id=name, rollout_seed=wanted.seed, runtime_type=RuntimeTypeEnum.RUN_OR_SERVE)
    state.intermediate_step_manager.subscribe(steps.append)
    policy = CapturePolicy(logprobs=wanted.logprobs, token_ids=wanted.token_ids, seed=wanted.seed)
    with state.active(), capturing(policy):
        return copy_context()
