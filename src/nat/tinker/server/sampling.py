"""Sampling for Tinker's clients: the sequences of a request, and their answer.

Log probabilities are those of the model itself, at temperature 1, because `forward_backward` scores tokens so.
"""

import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np

from nat.backend.inference.detokenizer import Detokenizer
from nat.backend.inference.sampler import derive_seed
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.model import LoadedModel
from nat.http.errors import ApiError
from nat.tinker.server.futures import Result
from nat.tinker.server.wire import MESSAGES, Sample
from nat.wire.sampling import MIN_TEMPERATURE


def sequences_of(request: Sample, loaded: LoadedModel) -> list[Sequence]:
    """The samples of a request, each with a seed of its own; ApiError if the prompt does not fit the model."""
    wanted, prompt = request.sampling_params, [t for chunk in request.prompt.chunks for t in chunk.tokens]
    room = loaded.max_seq_length - len(prompt)
    if not prompt or room < (wanted.max_tokens or 1) or not all(0 <= t < loaded.vocab_size for t in prompt):
        raise ApiError(
            f"the prompt has {len(prompt)} tokens, and max_tokens is {wanted.max_tokens}; wanted are at least 1 of "
            f"each, {loaded.max_seq_length} together, from the vocabulary of {loaded.vocab_size}",
            param="prompt",
        )
    stop = [wanted.stop] if isinstance(wanted.stop, str) else wanted.stop or []
    texts = tuple(each for each in stop if isinstance(each, str) and each)
    seed = secrets.randbits(64) if wanted.seed is None else wanted.seed
    found = []
    for number in range(request.num_samples):
        params = SamplingParams(
            max_tokens=wanted.max_tokens or room,
            temperature=wanted.temperature if wanted.temperature >= MIN_TEMPERATURE else 0.0,
            top_p=wanted.top_p,
            seed=derive_seed(seed, number),
            stop=texts,
            ignore_eos=wanted.stop == [],
            stop_token_ids=frozenset(each for each in stop if isinstance(each, int)),
            untempered=True,
            prompt_logprobs=0 if request.prompt_logprobs and not number else None,
        )
        text = Detokenizer(loaded.tokenizer, texts, special=True) if texts else None
        found.append(Sequence(number, prompt, params, text))
    return found


def sample_result(wanted: Sample, request: Request) -> Result:
    """The answer to a finished request."""
    scores: list[float | None] = [None, *(own.logprob for own, *_ in request.sequences[0].prompt_scores)]
    unscored = max(0, len(scores) - (wanted.prompt_logprobs_last_n or len(scores)))
    scores[:unscored] = [None] * unscored

    def json() -> dict[str, Any]:
        sequences = [
            {"stop_reason": s.finish_reason, "tokens": s.token_ids, "logprobs": s.logprobs} for s in request.sequences
        ]
        return {"type": "sample", "sequences": sequences, "prompt_logprobs": scores if wanted.prompt_logprobs else None}

    def protobuf() -> bytes:
        answer = MESSAGES["SampleResponse"](prompt_logprobs=_floats(scores) if wanted.prompt_logprobs else b"")
        for s in request.sequences:
            length, tokens = int(s.finish_reason == "length"), np.array(s.token_ids, "<i4").tobytes()
            answer.sequences.add(stop_reason=length, tokens=tokens, logprobs=_floats(s.logprobs))
        content: bytes = answer.SerializeToString()
        return content

    return Result(json, protobuf)


def _floats(values: Iterable[float | None]) -> bytes:
    """Numbers as float32, with NaN for None."""
    return np.array([np.nan if value is None else value for value in values], "<f4").tobytes()
