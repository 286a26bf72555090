"""The exact tokens of an answer, as a call carries them and as an episode's item does."""

from collections.abc import Sequence
from dataclasses import replace

from nat.data_models.finetuning import EpisodeItem
from nat.data_models.llm_call import LLMCall
from nat.finetuning.trajectories.calls import token_logprobs
from nat.wire.rows import CallTokens


def tokens_of_call(call: LLMCall, value: float | None = None) -> CallTokens | None:
    """None if the call cannot be trained on id by id; `value` is what its answer is compared by."""
    found = _tokens(call.llm_name or call.model, call.prompt_token_ids, call.token_ids, call.logprobs, value)
    return found and replace(found, temperature=call.logprobs_temperature)


def tokens_of_item(item: EpisodeItem, value: float | None = None) -> CallTokens | None:
    """Likewise for an answer in an episode."""
    data = item.metadata or {}
    logprobs = token_logprobs(item.logprobs)
    found = _tokens(str(data.get("model")), data.get("prompt_token_ids"), data.get("token_ids"), logprobs, value)
    return found and replace(found, temperature=data.get("logprobs_temperature", 1.0))


def _tokens(
    model: str,
    prompt: Sequence[int] | None,
    sampled: Sequence[int] | None,
    logprobs: Sequence[float] | None,
    value: float | None,
) -> CallTokens | None:
    if not prompt or sampled is None or logprobs is None or len(sampled) != len(logprobs):
        return None
    return CallTokens(model=model, prompt=prompt, sampled=sampled, logprobs=logprobs, value=value)
