"""A gateway in front of a scripted server, with a way to open rollouts."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from fakes.openai_server import OpenAIServer, Script
from nat.builder.context import ContextState
from nat.capture.context import CapturePolicy, capturing
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType
from nat.data_models.llm_call import LLMCall
from nat.gateway.access import Keyring, RolloutAccess
from nat.gateway.app import GatewayApp
from nat.gateway.upstream import Upstream
from nat.http.server import listening
from nat.plugins.llms.client import push_step

EXACT = CapturePolicy(logprobs=True, token_ids=True, seed=7)


@dataclass
class OpenRollout:
    """What an agent gets, and what was recorded."""

    url: str
    key: str
    access: RolloutAccess
    steps: list[IntermediateStep] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def calls(self) -> list[LLMCall]:
        ends = (step for step in self.steps if step.event_type is IntermediateStepType.LLM_END)
        return [step.metadata.llm_call for step in ends]


@dataclass
class FakeGateway:
    server: OpenAIServer
    upstream: Upstream
    keyring: Keyring
    url: str

    @asynccontextmanager
    async def rollout(self, policy: CapturePolicy = EXACT) -> AsyncIterator[OpenRollout]:
        """A rollout whose key is valid until the block ends."""
        steps: list[IntermediateStep] = []
        with ContextState().active() as context, capturing(policy):
            context.intermediate_step_manager.subscribe(steps.append)
            access = RolloutAccess({"student": self.upstream})
            async with self.keyring.opened(access) as key:
                yield OpenRollout(self.url, key, access, steps)


@asynccontextmanager
async def gateway(
    script: Script | OpenAIServer | None = None,
    *,
    seconds: float = 20.0,
    max_retries: int = 0,
    max_tokens: int | None = None,
    **defaults: object,
) -> AsyncIterator[FakeGateway]:
    """A listening gateway with a scripted server as its upstream."""
    async with AsyncExitStack() as stack:
        given = script if isinstance(script, OpenAIServer) else OpenAIServer(script)
        server = await stack.enter_async_context(given)
        defaults = {"max_tokens": max_tokens, **defaults} if max_tokens else defaults
        tap = Tap(push_step, llm_name="student", base_url=server.base_url, defaults=defaults)
        upstream = await stack.enter_async_context(
            Upstream(
                tap,
                base_url=server.base_url,
                api_key="upstream-key",
                model_name="tiny",
                timeout=seconds,
                max_retries=max_retries,
                max_tokens=max_tokens,
            )
        )
        keyring = Keyring()
        url = await stack.enter_async_context(listening(GatewayApp(keyring)))
        yield FakeGateway(server, upstream, keyring, url)
