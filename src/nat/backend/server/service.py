"""What every inference route needs: the worker, and how a checked request becomes sequences."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from nat.backend.inference.randomness import derive_seed
from nat.backend.inference.sequence import SamplingParams, Sequence
from nat.backend.inference.text import TextStream
from nat.backend.inference.worker import Worker
from nat.backend.model import LoadedModel
from nat.backend.server.errors import ApiError
from nat.wire.answers import Usage
from nat.wire.chat import SamplingRequest

MAX_CHOICES = 256
_NO_TOKENS = "the prompt has no tokens; at least one is needed"


@dataclass(frozen=True)
class Service:
    """The model behind the routes."""

    worker: Worker
    clock: Callable[[], float] = time.time

    @property
    def loaded(self) -> LoadedModel:
        return self.worker.engine.loaded

    @property
    def names(self) -> list[str]:
        """The model's plain name, which always means the newest weights, and `name@step`."""
        version = self.worker.policy_version
        return [version.rpartition("@")[0], version]

    def now(self) -> int:
        """Seconds since 1970, for the `created` field of answers."""
        return int(self.clock())

    def check_model(self, name: str) -> None:
        if name not in self.names:
            raise ApiError(
                f"model {name!r} is not served here; use {self.names[0]!r} (now {self.names[1]!r})",
                status=404,
                param="model",
                code="model_not_found",
            )

    def sequences(
        self, asked: SamplingRequest, prompts: list[list[int]], *, new_tokens: int | None, top_logprobs: int
    ) -> list[Sequence]:
        """`n` sequences for each prompt, each with a seed of its own."""
        self.check_model(asked.model)
        if not prompts:
            raise ApiError(_NO_TOKENS, param="prompt")
        if asked.n * len(prompts) > MAX_CHOICES:
            raise ApiError(f"{asked.n * len(prompts)} choices in one request; at most {MAX_CHOICES}", param="n")
        seed = secrets.randbits(64) if asked.seed is None else asked.seed
        stop = tuple(asked.stop)
        sequences: list[Sequence] = []
        for prompt in prompts:
            room = self._room(prompt, new_tokens)
            for _ in range(asked.n):
                params = SamplingParams(
                    max_tokens=room,
                    temperature=asked.temperature,
                    top_p=asked.top_p,
                    seed=derive_seed(seed, len(sequences)),
                    stop=stop,
                    top_logprobs=top_logprobs,
                    ignore_eos=asked.ignore_eos,
                )
                text = TextStream(self.loaded.tokenizer, stop) if stop or asked.stream else None
                sequences.append(Sequence(len(sequences), prompt, params, text))
        return sequences

    def text(self, sequence: Sequence) -> str:
        """The text of a finished sequence."""
        if sequence.text is not None:
            sequence.text.finish()
            return sequence.text.text
        return self.loaded.tokenizer.decode(sequence.token_ids)

    def _room(self, prompt: list[int], wanted: int | None) -> int:
        limit = self.loaded.max_seq_length
        if not prompt:
            raise ApiError(_NO_TOKENS, param="prompt")
        room = limit - len(prompt)
        if room < (wanted or 1):
            asked = f" and {wanted} new ones were asked for" if wanted else ""
            raise ApiError(
                f"this model's context has {limit} tokens; the prompt has {len(prompt)}{asked}. "
                "Shorten the prompt or lower max_tokens",
                param="max_tokens" if room > 0 else "messages",
                code="context_length_exceeded",
            )
        return wanted or room


def usage_of(sequences: list[Sequence]) -> Usage:
    """Each prompt counts once, however many choices it has."""
    prompts = {id(s.prompt_ids): len(s.prompt_ids) for s in sequences}
    prompt, completion = sum(prompts.values()), sum(len(s.token_ids) for s in sequences)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
