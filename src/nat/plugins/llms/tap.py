"""The tap of an OpenAI-compatible LLM, as the clients of all frameworks use it."""

from nat.builder.context import Context
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepPayload
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.openai import OpenAIModelConfig


def open_tap(config: OpenAIModelConfig, *, llm_name: str | None, framework: LLMFrameworkEnum) -> Tap:
    """Records calls into the rollout that makes them, under the LLM's key in the YAML."""
    return Tap(
        push_step,
        llm_name=llm_name,
        framework=framework,
        base_url=config.server_url,
        defaults=config.request_defaults,
    )


def push_step(payload: IntermediateStepPayload) -> None:
    """Into the rollout that is current."""
    Context.get().intermediate_step_manager.push_intermediate_step(payload)
