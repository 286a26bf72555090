"""Sample requests, and score rows, through vLLM."""

import asyncio
from collections.abc import Sequence as Sequence_
from contextlib import aclosing
from itertools import islice

import httpx
import torch

from nat.backend.inference.sequence import Delta, FinishReason, Request, Sequence
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.loss import ByRow
from nat.backend.vllm.client import LOOK, Explain, generate, replaced, stream
from nat.backend.vllm.wire import Generated, SampledLogprob, Served, VllmChoice, request_for, score_request
from nat.errors import EngineFailed

SCORE_SECONDS = 300.0
"""In which the few tokens of a comparison must be scored, beside answers that have begun."""
_FINISHED: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}


class Caller:
    """Calls vLLM for one model."""

    def __init__(self, http: httpx.AsyncClient, explain: Explain, loaded: LoadedModel) -> None:
        self._http = http
        self._explain = explain
        self._loaded = loaded

    async def answer(self, request: Request, served: Served) -> None:
        """Sample all sequences of a request; its listener gets the deltas."""
        async with asyncio.TaskGroup() as group:
            for sequence in request.sequences:
                group.create_task(self._sample(request, sequence, served))

    async def score(self, rows: Sequence_[Row], served: Served) -> ByRow:
        """Score the sampled tokens of each row, each by one request; log probabilities [K] by row."""
        asked = [
            self._score(row.input_ids[: position + 1], target, temperature, served)
            for row in rows
            for position, target, temperature in zip(row.positions, row.targets, row.sampled_at, strict=True)
        ]
        try:
            async with asyncio.timeout(SCORE_SECONDS):
                found = iter(await asyncio.gather(*asked))
        except TimeoutError:
            lost = f"vLLM did not score {len(asked)} tokens within {SCORE_SECONDS:.0f} s"
            raise EngineFailed(lost, hint="look at its log; it may hang though it says that it is well") from None
        return {row.index: torch.tensor(list(islice(found, len(row.targets)))) for row in rows}

    async def _sample(self, request: Request, sequence: Sequence, served: Served) -> None:
        # Stop strings are found in our own text, so the tokens are needed one by one.
        streamed = request.stream or bool(sequence.params.stop)
        body = request_for(
            sequence,
            model=served.model,
            eos=sorted(self._loaded.eos_token_ids),
            vocab_size=self._loaded.vocab_size,
            stream=streamed,
        )
        if not streamed:
            self._add(sequence, await generate(self._http, body, self._explain), served)
            if sequence.finish_reason is not None:
                return
            raise _unfinished(sequence)
        async with aclosing(stream(self._http, body, self._explain)) as parts:  # type: ignore[type-var]
            async for part in parts:
                new = self._add(sequence, part, served)
                if new and request.stream:
                    request.listener.on_deltas([Delta.newest(sequence, new)])
                if sequence.finish_reason is not None:
                    return
        raise _unfinished(sequence)

    def _add(self, sequence: Sequence, generated: Generated, served: Served) -> int:
        sequence.num_reused = generated.num_reused or sequence.num_reused
        if not generated.choices:
            return 0
        choice = generated.choices[0]
        if choice.finish_reason in {"abort", "error"}:
            raise EngineFailed(
                f"vLLM ended an answer after {len(sequence.token_ids)} tokens with '{choice.finish_reason}'",
                hint="nothing else may pause this server or abort its requests; look at the end of its log",
            )
        _check_weights(choice, served)
        before = len(sequence.token_ids)
        for token_id, entry in zip(choice.token_ids, _logprobs(choice, self._loaded.vocab_size), strict=True):
            best = sorted(((top.token_id, top.logprob) for top in entry.top_logprobs), key=lambda pair: -pair[1])
            alternatives = best[: sequence.params.top_logprobs]
            sequence.add(token_id, entry.logprob, alternatives, self._loaded.eos_token_ids)
            if sequence.finish_reason is not None:
                break
        else:
            sequence.finish_reason = _FINISHED.get(choice.finish_reason)
        return len(sequence.token_ids) - before

    async def _score(self, prompt_ids: list[int], token_id: int, temperature: float, served: Served) -> float:
        request = score_request(prompt_ids, token_id, temperature, model=served.model)
        generated = await generate(self._http, request, self._explain)
        for choice in generated.choices:
            _check_weights(choice, served)
        entries = [entry for choice in generated.choices for entry in _logprobs(choice, self._loaded.vocab_size)]
        scored = [top.logprob for entry in entries for top in (entry, *entry.top_logprobs) if top.token_id == token_id]
        if not scored:
            raise EngineFailed(
                "vLLM did not report the log probability of a given token",
                hint="use a version of vLLM that knows logprob_token_ids",
            )
        return scored[0]


def _check_weights(choice: VllmChoice, served: Served) -> None:
    found = {span.version for span in choice.weight_versions or ()}
    if served.stamp is not None and not found <= {served.stamp}:
        raise replaced(f"it has answered with weights named {', '.join(sorted(found))}, and was given {served.stamp}")


def _unfinished(sequence: Sequence) -> EngineFailed:
    return EngineFailed(
        f"vLLM's answer ended after {len(sequence.token_ids)} tokens without a finish reason", hint=LOOK
    )


def _logprobs(choice: VllmChoice, vocab_size: int) -> Sequence_[SampledLogprob]:
    found = choice.logprobs.content if choice.logprobs is not None else []
    if len(found) != len(choice.token_ids):
        raise EngineFailed(
            f"vLLM reported {len(found)} log probabilities for {len(choice.token_ids)} tokens",
            hint="another version of vLLM may answer in another format",
        )
    for token_id, entry in zip(choice.token_ids, found, strict=True):
        ids = [token_id, *(top.token_id for top in entry.top_logprobs)]
        if entry.token_id != token_id or not all(0 <= each < vocab_size for each in ids):
            raise EngineFailed(
                f"vLLM reported token {token_id}, the log probability of {entry.token_id}, and as others {ids[1:]}; "
                f"wanted is one token, and all of the vocabulary of {vocab_size}",
                hint="it must serve the very model that is trained here, and report token ids",
            )
    return found
