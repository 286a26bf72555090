"""Shared by the inference routes: the engine, length limits, and sequences from a checked body."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from starlette.responses import Response

from nat.backend.inference.detokenizer import Detokenizer
from nat.backend.inference.sampler import derive_seed
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.model import LoadedModel
from nat.backend.sampling import SamplingEngine
from nat.backend.server.bodies import TOO_LONG, json_answer
from nat.http.errors import ApiError
from nat.wire.openai_api import Completion, CompletionRequest, SamplingRequest
from nat.wire.sampling import Sampling, read_sampling
from nat.wire.serving import NOTICES

notices = logging.getLogger(NOTICES)

B = TypeVar("B", bound=SamplingRequest)
LARGE_ANSWER = 2000
"""Tokens and alternatives that can be written within milliseconds; larger responses are written in a thread."""
_NO_TOKENS = "the prompt has no tokens; at least one is needed"


class AnswerMemory(Protocol):
    """Remembers prompts and the answers sampled after them, for exact training; thread-safe."""

    def remember(
        self, prompt_ids: list[int], token_ids: list[int], logprobs: list[float], sampling: Sampling
    ) -> None: ...


@dataclass(frozen=True)
class Service:
    """The models behind the routes."""

    engine: SamplingEngine
    clock: Callable[[], float] = time.time
    answers: AnswerMemory | None = None
    """Remembers answers; if set, each has the ids and log probabilities of its tokens, requested or not."""

    ignored: set[str] | None = None
    """Set if unknown fields of requests are no errors: clients of others send what their own servers understand."""
    _warned: set[str] = field(default_factory=set)

    @property
    def loaded(self) -> LoadedModel:
        return self.engine.loaded

    def now(self) -> int:
        """Seconds since 1970, for the `created` field of answers."""
        return int(self.clock())

    def warn_once(self, message: str, *facts: object) -> None:
        """Tell the user, the first time that this server has it."""
        if message not in self._warned:
            self._warned.add(message)
            notices.warning(message, *facts)

    def check_model(self, name: str | None) -> None:
        """Raise ApiError for a name that is not served; None is the model that the backend started with."""
        if name is not None and not self.engine.knows(name):
            served = ", ".join(map(repr, self.engine.names()))
            raise ApiError(
                f"model {name!r} is not served here; served are {served}",
                status=404,
                param="model",
                code="model_not_found",
            )

    def sequences(
        self,
        body: SamplingRequest,
        prompts: list[list[int]],
        *,
        top_logprobs: int,
        prompt_logprobs: int | None = None,
        special: bool = False,
    ) -> list[Sequence]:
        """`n` sequences for each prompt, each with a seed of its own; `special` says to keep special tokens as text."""
        if not prompts:
            raise ApiError(_NO_TOKENS, param="prompt")
        seed = secrets.randbits(64) if body.seed is None else body.seed
        stop = tuple(body.stop)
        sequences: list[Sequence] = []
        rooms = [self._room(prompt, body.new_tokens) for prompt in prompts]
        for prompt, room in zip(prompts, rooms, strict=True):
            for _ in range(body.n):
                params = SamplingParams(
                    max_tokens=room,
                    temperature=body.temperature,
                    top_p=body.top_p,
                    seed=derive_seed(seed, len(sequences)),
                    stop=stop,
                    top_logprobs=top_logprobs,
                    ignore_eos=body.ignore_eos,
                    prompt_logprobs=prompt_logprobs,
                )
                text = Detokenizer(self.loaded.tokenizer, stop, special=special) if stop or body.stream else None
                sequences.append(Sequence(len(sequences), prompt, params, text))
        return sequences

    def with_training_fields(self, body: B) -> B:
        """Request the tokens for clients that train on answers but never request them."""
        if self.answers is None:
            return body
        logprobs = body.logprobs or 0 if isinstance(body, CompletionRequest) else True
        ids = dict.fromkeys(("return_token_ids", "return_tokens_as_token_ids"), True)
        return body.model_copy(update={"logprobs": logprobs, **ids})

    def remember(self, sequences: list[Sequence]) -> None:
        """Remember finished answers for training, if `answers` is set."""
        if self.answers is not None:
            for s in sequences:
                sampling = read_sampling({"temperature": s.params.temperature, "top_p": s.params.top_p})
                self.answers.remember(s.prompt_ids, s.token_ids, s.logprobs, sampling)

    async def written(self, request: Request, write: Callable[[Request], Completion]) -> Response:
        """The response to a finished request; a large one is written in a thread, which does not block others."""
        size = sum(
            len(s.token_ids) * (1 + s.params.top_logprobs) + sum(map(len, s.prompt_scores)) for s in request.sequences
        )
        if size < LARGE_ANSWER:
            return json_answer(write(request))
        return await asyncio.to_thread(lambda: json_answer(write(request)))

    def text(self, sequence: Sequence) -> str:
        """The text of a finished sequence."""
        if sequence.text is not None:
            sequence.text.finish()
            return sequence.text.text
        return self.loaded.tokenizer.decode(sequence.token_ids)

    def answer_text(self, sequence: Sequence) -> str:
        """The text of a finished chat sequence with its special tokens, also the one that ended it."""
        end = self.stop_text(sequence)
        if sequence.text is None:
            return self.loaded.tokenizer.decode_marked(sequence.token_ids[: -1 if end else None]) + end
        sequence.text.finish()
        return sequence.text.text + end

    def stop_text(self, sequence: Sequence) -> str:
        """The token that ended a sequence, which a stream's text lacks, and the usual one, which formats know."""
        if sequence.finish_reason != "stop" or sequence.stop_reason is not None or not sequence.token_ids:
            return ""
        tokenizer, last = self.loaded.tokenizer, sequence.token_ids[-1]
        usual = "" if last == tokenizer.eos_token_id else tokenizer.hf.eos_token or ""
        return tokenizer.decode_marked([last]) + usual

    def _room(self, prompt: list[int], wanted: int | None) -> int:
        limit = self.loaded.max_seq_length
        if not prompt:
            raise ApiError(_NO_TOKENS, param="prompt")
        room = limit - len(prompt)
        if room < (wanted or 1):
            requested = f" and {wanted} new ones were requested" if wanted else ""
            raise ApiError(
                f"this model's context has {limit} tokens; the prompt has {len(prompt)}{requested}. "
                "Shorten the prompt or lower max_tokens",
                param="max_tokens" if room > 0 else "messages",
                code=TOO_LONG,
            )
        return wanted or room


def usage_of(sequences: list[Sequence]) -> dict[str, Any]:
    """The tokens of all choices, end-of-sequence tokens too; each prompt counts once, for any number of choices."""
    prompts = {id(s.prompt_ids): s for s in reversed(sequences)}
    prompt, completion = sum(len(s.prompt_ids) for s in prompts.values()), sum(len(s.token_ids) for s in sequences)
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    reused = sum(s.num_reused for s in prompts.values())
    return {**counts, "prompt_tokens_details": {"cached_tokens": reused}} if reused else {**counts}
