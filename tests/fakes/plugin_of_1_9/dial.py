"""A model with one weight, as an LLM provider with a client for LangChain's agents."""

import math
from dataclasses import dataclass

from pydantic import Field

from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData
from nat.plugin_api import (
    Builder,
    Context,
    LLMBaseConfig,
    LLMFrameworkEnum,
    LLMProviderInfo,
    register_llm_client,
    register_llm_provider,
)


class DialModelConfig(LLMBaseConfig, name="dial"):
    """A model that says "high" or "low"."""

    model_name: str = Field(default="dial", description="Name of the model.")
    start: float = Field(default=0.0, description="The weight before training.")


@dataclass
class Dial:
    """Says "high" with the probability of a sigmoid of its weight; the n-th of ten calls takes the n-th decile."""

    weight: float
    calls: int = 0

    def ask(self, question: str) -> str:
        high = 1 / (1 + math.exp(-self.weight))
        word = "high" if (self.calls % 10 + 0.5) / 10 < high else "low"
        self.calls += 1
        manager = Context.get().intermediate_step_manager
        start = IntermediateStepPayload(
            event_type=IntermediateStepType.LLM_START,
            framework=LLMFrameworkEnum.LANGCHAIN,
            name="dial",
            data=StreamEventData(input=[{"role": "user", "content": question}]),
        )
        logprob = math.log(high if word == "high" else 1 - high)
        end = IntermediateStepPayload(
            event_type=IntermediateStepType.LLM_END,
            framework=LLMFrameworkEnum.LANGCHAIN,
            name="dial",
            UUID=start.UUID,
            data=StreamEventData(output=word, payload={"logprobs": {"content": [{"token": word, "logprob": logprob}]}}),
        )
        manager.push_intermediate_step(start)
        manager.push_intermediate_step(end)
        return word


DIALS: dict[str, Dial] = {}


@register_llm_provider(config_type=DialModelConfig)
async def dial_provider(config: DialModelConfig, builder: Builder):
    yield LLMProviderInfo(config=config, description="A dial.")


@register_llm_client(config_type=DialModelConfig, wrapper_type=LLMFrameworkEnum.LANGCHAIN)
async def dial_langchain(config: DialModelConfig, builder: Builder):
    yield DIALS.setdefault(config.model_name, Dial(config.start))
