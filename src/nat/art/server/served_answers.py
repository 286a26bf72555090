"""Remembers the prompt of each served answer and how it was sampled, so that training uses exact tokens.

A client sends text and the sampled tokens, but neither the tokens of the prompt nor the temperature. Tokenizing the
prompt again may split earlier answers in another way than the model saw them.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from nat.wire.sampling import MODELS_OWN, Sampling

MAX_BYTES = 128 * 2**20
ENTRY_BYTES = 300
"""Size of an entry beyond its content: keys, links, object headers."""
MAX_PROMPTS = 64
"""Prompts of one answer; the oldest are dropped first."""


@dataclass
class _Served:
    """One answer's sampling and prompts."""

    sampling: Sampling
    prompts: list["array[int]"] = field(default_factory=list)


class ServedAnswers:
    """Prompts by their answer, in at most `max_bytes`; the least recently used are dropped first.

    Safe to call from any thread.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._answers: OrderedDict[bytes, _Served] = OrderedDict()
        self.num_bytes = 0
        """Memory in use: four bytes for each token of a prompt, and the overhead of each prompt."""
        self._lock = threading.Lock()

    def remember(
        self,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int],
        logprobs: Sequence[float],
        sampling: Sampling = MODELS_OWN,
    ) -> None:
        """Keep the prompt of an answer, and how it was sampled."""
        key, prompt = _key(token_ids, logprobs), array("i", prompt_ids)
        with self._lock:
            served = self._answers.setdefault(key, _Served(sampling))
            served.sampling = sampling
            self._answers.move_to_end(key)
            prompts = served.prompts
            if prompt not in prompts:
                prompts.append(prompt)
                self.num_bytes += _size(prompt)
            if len(prompts) > MAX_PROMPTS:
                self.num_bytes -= _size(prompts.pop(0))
            while self.num_bytes > self._max_bytes:
                _, forgotten = self._answers.popitem(last=False)
                self.num_bytes -= sum(map(_size, forgotten.prompts))

    def prompts_of(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> list[Sequence[int]]:
        """The prompts of exactly this answer: usually one, none if the answer is unknown.

        There are several if the model is certain of a short answer: its log probabilities are then exactly zero.
        """
        key = _key(token_ids, logprobs)
        with self._lock:
            if key not in self._answers:
                return []
            self._answers.move_to_end(key)
            return list(self._answers[key].prompts)

    def sampling_of(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> Sampling:
        """How exactly this answer was sampled; an unknown one counts as sampled from the model's own distribution.

        Log probabilities of exactly zero do not identify an answer, but they are the same at every temperature.
        """
        with self._lock:
            served = self._answers.get(_key(token_ids, logprobs))
            return MODELS_OWN if served is None else served.sampling


def _size(prompt: "array[int]") -> int:
    return ENTRY_BYTES + prompt.itemsize * len(prompt)


def _key(token_ids: Sequence[int], logprobs: Sequence[float]) -> bytes:
    """Hash tokens and log probabilities to the last bit, since JSON keeps floats exact."""
    content = array("q", token_ids).tobytes() + array("d", logprobs).tobytes()
    return blake2b(content, digest_size=16).digest()
