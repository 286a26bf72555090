"""What vLLM's route `/inference/v1/generate` takes and answers, as far as it is used here. Token ids, no text."""

from collections.abc import Sequence as Sequence_
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, Field

from nat.backend.inference.sequence import Sequence
from nat.wire.numbers import Logprob

GENERATE = "/inference/v1/generate"
_SEED_BITS = (1 << 63) - 1


class Served(NamedTuple):
    """Weights, as requests to vLLM and its answers name them."""

    model: str
    """The name that requests use."""
    stamp: str | None = None
    """What answers call the weights; None if vLLM was not told a name."""


class VllmSampling(BaseModel):
    """Fields of vLLM's SamplingParams; those that are left out keep vLLM's defaults."""

    max_tokens: int
    temperature: float
    top_p: float = 1.0
    seed: int | None = None
    logprobs: int
    """Alternatives per token; 0 gives only the sampled token's log probability."""
    logprob_token_ids: list[int] | None = None
    """Score these tokens instead of the most likely ones."""
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    detokenize: bool = False


class Generate(BaseModel):
    """One prompt and how it is continued."""

    model: str
    token_ids: list[int]
    sampling_params: VllmSampling
    stream: bool = False


class VllmLogprob(BaseModel):
    """A token and its log probability, at the temperature of the request."""

    token_id: int
    logprob: Annotated[float, Field(le=1.0)]


class SampledLogprob(VllmLogprob):
    """The sampled token, and alternatives to it in no certain order."""

    logprob: Logprob
    top_logprobs: list[VllmLogprob] = []


class Logprobs(BaseModel):
    """One entry per generated token."""

    content: list[SampledLogprob]


class WeightSpan(BaseModel):
    """Names the weights that sampled a part of an answer."""

    version: str


class VllmChoice(BaseModel):
    """New tokens, and why they are the last ones; with the last ones, the weights that sampled all of them."""

    token_ids: list[int] = []
    logprobs: Logprobs | None = None
    finish_reason: Literal["stop", "length", "abort", "error"] | None = None
    weight_versions: list[WeightSpan] | None = None


class CachedTokens(BaseModel):
    """Prompt tokens that came from the prefix cache."""

    cached_tokens: int | None = None


class VllmUsage(BaseModel):
    """Token counts; only those of the prefix cache are used."""

    prompt_tokens_details: CachedTokens | None = None


class Generated(BaseModel):
    """An answer, or one event of a stream."""

    choices: list[VllmChoice]
    usage: VllmUsage | None = None

    @property
    def num_reused(self) -> int:
        details = self.usage.prompt_tokens_details if self.usage else None
        return (details.cached_tokens or 0) if details else 0


def request_for(sequence: Sequence, *, model: str, eos: Sequence_[int], vocab_size: int, stream: bool) -> Generate:
    """The request that samples a sequence."""
    params = sequence.params
    # vLLM lists the sampled token first, so one more alternative is needed for as many others.
    logprobs = min(params.top_logprobs + 1, vocab_size) if params.top_logprobs else 0
    return Generate(
        model=model,
        token_ids=sequence.prompt_ids,
        sampling_params=VllmSampling(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            seed=params.seed & _SEED_BITS,
            logprobs=logprobs,
            stop_token_ids=[] if params.ignore_eos else list(eos),
            ignore_eos=params.ignore_eos,
        ),
        stream=stream,
    )


def score_request(prompt_ids: list[int], token_id: int, temperature: float, *, model: str) -> Generate:
    """The request that scores one token after a prompt, by the same path that samples."""
    # The sampled token is listed first and counts, so the scored one is given twice.
    scored = [token_id, token_id]
    sampling = VllmSampling(max_tokens=1, temperature=temperature, logprobs=len(scored), logprob_token_ids=scored)
    return Generate(model=model, token_ids=prompt_ids, sampling_params=sampling)
