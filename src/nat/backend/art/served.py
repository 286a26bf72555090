"""Remember the prompt of each answer, so that what comes back for training is exact.

A client sends text and the sampled tokens, but not the prompt as the model saw it. Tokenising it again may split
earlier answers in another way; the prompt that was served does not.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

MAX_PROMPTS = 64
"""Of one and the same answer; the oldest go first."""


class ServedAnswers:
    """Prompts by the answer that they got, at most `max_tokens` of them; the least recently used go first.

    Safe to call from any thread.
    """

    def __init__(self, max_tokens: int = 20_000_000) -> None:
        self._max_tokens = max_tokens
        self._prompts: OrderedDict[bytes, list[array[int]]] = OrderedDict()
        self._num_tokens = 0
        self._lock = threading.Lock()

    @property
    def num_tokens(self) -> int:
        """Prompt tokens that are held; four bytes each."""
        return self._num_tokens

    def remember(self, prompt_ids: Sequence[int], token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Keep the prompt of an answer."""
        key, prompt = _key(token_ids, logprobs), array("i", prompt_ids)
        with self._lock:
            prompts = self._prompts.setdefault(key, [])
            self._prompts.move_to_end(key)
            if prompt not in prompts:
                prompts.append(prompt)
                self._num_tokens += len(prompt)
            if len(prompts) > MAX_PROMPTS:
                self._num_tokens -= len(prompts.pop(0))
            while self._num_tokens > self._max_tokens:
                _, forgotten = self._prompts.popitem(last=False)
                self._num_tokens -= sum(map(len, forgotten))

    def prompts_of(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> list[Sequence[int]]:
        """Give the prompts that got this very answer: none if it is not known, as a rule one.

        A short answer that the model is sure of has log probabilities of exactly zero after many prompts.
        """
        key = _key(token_ids, logprobs)
        with self._lock:
            if key not in self._prompts:
                return []
            self._prompts.move_to_end(key)
            return list(self._prompts[key])


def _key(token_ids: Sequence[int], logprobs: Sequence[float]) -> bytes:
    """Tokens with their log probabilities to the last bit: JSON gives floats back as they were."""
    content = array("q", token_ids).tobytes() + array("d", logprobs).tobytes()
    return blake2b(content, digest_size=16).digest()
