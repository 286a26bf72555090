"""Calls and tokens of LLMs, by their keys in the YAML, and what they cost."""

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType
from nat.wire.numbers import Amount

Purpose = Literal["rollout", "judge", "teacher", "training", "checks"]
"""What calls were for. Tokens that a server of others trained on count as prompts of `training`, and those that were
scored before and after as prompts of `checks`."""


class LLMUsage(BaseModel):
    """Answers of an LLM and their tokens, as its server counts them; shares of a call are possible."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    calls: float = Field(default=0, ge=0)
    """Answers; a request for several has several."""
    prompt_tokens: float = Field(default=0, ge=0)
    completion_tokens: float = Field(default=0, ge=0)

    def __add__(self, other: "LLMUsage") -> "LLMUsage":
        """Both together."""
        return LLMUsage(**{name: count + getattr(other, name) for name, count in self})

    def __mul__(self, share: float) -> "LLMUsage":
        """A share of it."""
        return LLMUsage(**{name: count * share for name, count in self})


Usage = Mapping[str, LLMUsage]
"""By the LLM's key in the YAML, or by the model's name if the harness did not build its client."""


def usage_of_steps(steps: Iterable[IntermediateStep]) -> dict[str, LLMUsage]:
    """What the calls among some steps took."""
    found: list[dict[str, LLMUsage]] = []
    for step in steps:
        if step.event_type is IntermediateStepType.LLM_END:
            name = ((call := step.llm_call) and call.llm_name) or step.name or ""
            used = None if step.usage_info is None else step.usage_info.token_usage
            tokens = (0, 0) if used is None else (used.prompt_tokens, used.completion_tokens)
            found.append({name: LLMUsage(calls=1, prompt_tokens=tokens[0], completion_tokens=tokens[1])})
    return added(found)


def added(parts: Iterable[Usage]) -> dict[str, LLMUsage]:
    """The sum for each LLM."""
    total: dict[str, LLMUsage] = {}
    for part in parts:
        for name, used in part.items():
            total[name] = total.get(name, LLMUsage()) + used
    return total


class PriceConfig(BaseModel):
    """Prices of one LLM, all in the same currency."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    prompt: Amount = 0.0
    """Of a million prompt tokens."""
    completion: Amount = 0.0
    """Of a million sampled tokens."""
    call: Amount = 0.0
    """Of an answer, besides."""
    training: Amount = 0.0
    """Of a million tokens that a server of others trains on."""


def price_of(by_purpose: Mapping[Purpose, Usage], prices: Mapping[str, PriceConfig]) -> float:
    """Of all LLMs that have a price."""
    total = 0.0
    for purpose, usage in by_purpose.items():
        for price, used in ((prices[name], used) for name, used in usage.items() if name in prices):
            if purpose == "training":
                total += price.training * used.prompt_tokens / 1_000_000
            else:
                tokens = price.prompt * used.prompt_tokens + price.completion * used.completion_tokens
                total += tokens / 1_000_000 + price.call * used.calls
    return total
