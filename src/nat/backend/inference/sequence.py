"""The engine's input and output: sampling parameters, sequences, requests, deltas, its load."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from nat.backend.inference.detokenizer import Detokenizer
from nat.backend.inference.prefix_cache import Node

FinishReason = Literal["stop", "length"]


class ScoredToken(NamedTuple):
    """A token at a position, under the model at temperature 1."""

    token_id: int
    logprob: float
    rank: int
    """1 for the most likely token."""


@dataclass(frozen=True)
class SamplingParams:
    """How one sequence is sampled; temperature 0 takes the most likely token."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    """64 bits that, with a token's position, decide the token: the same whatever else is in the batch."""
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    """How many most likely tokens to report at each position."""
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    """Tokens besides the model's own that end the sequence."""
    untempered: bool = False
    """Report log probabilities at temperature 1, whatever the temperature."""
    prompt_logprobs: int | None = None
    """How many most likely tokens to report at each position of the prompt, beside its own; None scores no prompt."""


@dataclass
class Sequence:
    """A prompt and its sampled tokens; only the engine changes it."""

    index: int
    """Index of this choice in its request."""
    prompt_ids: list[int]
    params: SamplingParams
    text: Detokenizer | None = None
    """Updated token by token if stop strings or a stream need it."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Log probability of each sampled token at the request's temperature; at 0, or `untempered`, that at 1."""
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    prompt_scores: list[list[ScoredToken]] = field(default_factory=list)
    """For each token of the prompt after the first: its score, and those of the most likely others."""
    finish_reason: FinishReason | None = None
    num_cached: int = 0
    """Leading tokens whose keys and values are in the cache."""
    num_reused: int = 0
    """Leading tokens of the prompt that came from the prefix cache."""
    node: Node | None = None
    """The last node of the prefix cache that it reads; its slot holds the tokens after it, or all without a node."""
    prefill_ids: list[int] = field(init=False)
    """What is computed before the next token is sampled: the prompt, and the tokens before an interruption."""

    def __post_init__(self) -> None:
        self.prefill_ids = self.prompt_ids

    def interrupt(self) -> None:
        """Give up the keys and values; they are computed again before the next token."""
        self.num_cached, self.node = 0, None
        self.prefill_ids = self.prompt_ids + self.token_ids

    def add(
        self, token_id: int, logprob: float, alternatives: list[tuple[int, float]], eos_token_ids: Container[int]
    ) -> None:
        """Add a sampled token, and set the finish reason if it is the last one."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if self.params.top_logprobs:
            self.top_logprobs.append(alternatives)
        ended = token_id in self.params.stop_token_ids or (token_id in eos_token_ids and not self.params.ignore_eos)
        if ended or (self.text is not None and self.text.push(token_id)):
            self.finish_reason = "stop"
        elif len(self.token_ids) >= self.params.max_tokens:
            self.finish_reason = "length"

    @property
    def stop_reason(self) -> str | None:
        """The stop string that has ended it; None for the end of the text."""
        return None if self.text is None or self.finish_reason != "stop" else self.text.stopped_by

    @property
    def to_score(self) -> bool:
        """True while tokens of the prompt are to be scored, so that all of it must be computed."""
        return self.params.prompt_logprobs is not None and len(self.prompt_scores) < len(self.prompt_ids) - 1

    @property
    def num_reported(self) -> int:
        """The most tokens that are reported beside the sampled ones."""
        scored = self.params.prompt_logprobs
        of_prompt = 0 if scored is None else (1 + scored) * len(self.prompt_ids)
        return self.params.top_logprobs * self.params.max_tokens + of_prompt

    @property
    def num_in_slot(self) -> int:
        """Tokens whose keys and values are in its slot."""
        return self.num_cached - (0 if self.node is None else self.node.end)

    @property
    def prefilled(self) -> bool:
        """True once all that comes before the next sampled token is in the cache."""
        return self.num_cached >= len(self.prefill_ids)


@dataclass(frozen=True)
class Delta:
    """The output of one step for a sequence of a streaming request."""

    index: int
    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]]
    text: str
    finish_reason: FinishReason | None

    @classmethod
    def newest(cls, sequence: Sequence, count: int = 1) -> "Delta":
        """The newest tokens of a sequence; their text may still be held back."""
        assert sequence.text is not None, "a streaming sequence keeps its text"
        new = slice(len(sequence.token_ids) - count, None)
        return cls(
            index=sequence.index,
            token_ids=sequence.token_ids[new],
            logprobs=sequence.logprobs[new],
            top_logprobs=sequence.top_logprobs[new],
            text=sequence.text.take() if sequence.finish_reason is None else sequence.text.finish(),
            finish_reason=sequence.finish_reason,
        )


class Listener(Protocol):
    """Receives a request's events on a thread of the engine; must return at once."""

    def on_deltas(self, deltas: list[Delta]) -> None:
        """New tokens; only for streaming requests, and before `on_finished`."""

    def on_finished(self) -> None:
        """All sequences have a finish reason and no longer change."""

    def on_failed(self, error: BaseException) -> None:
        """The request failed; no event follows."""


@dataclass(eq=False)
class Request:
    """Sequences that are answered together by one version of the weights."""

    sequences: list[Sequence]
    listener: Listener
    stream: bool = False
    model: str = ""
    """Name of the requested weights; empty for those that the backend started with."""
    policy_version: str | None = None
    """Set when the first sequence starts: `name@step` of the weights that answer."""

    @property
    def begun(self) -> bool:
        return self.policy_version is not None

    @property
    def finished(self) -> bool:
        return all(s.finish_reason is not None for s in self.sequences)
