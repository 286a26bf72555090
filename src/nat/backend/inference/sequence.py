"""The engine's input and output: sampling parameters, sequences, requests, deltas."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from nat.backend.inference.detokenizer import Detokenizer

FinishReason = Literal["stop", "length"]


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
    """Log probability of each sampled token at the request's temperature; at temperature 0, that at 1."""
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    num_cached: int = 0
    """Leading tokens whose keys and values are in the cache."""
    num_reused: int = 0
    """Leading tokens of the prompt that came from the prefix cache."""

    @property
    def prefilled(self) -> bool:
        """True once the whole prompt is in the cache."""
        return self.num_cached >= len(self.prompt_ids)


@dataclass(frozen=True)
class Delta:
    """The output of one step for a sequence of a streaming request."""

    index: int
    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]]
    text: str
    finish_reason: FinishReason | None


class Listener(Protocol):
    """Receives a request's events on the model thread; must return at once."""

    def on_deltas(self, deltas: list[Delta]) -> None:
        """New tokens; only for streaming requests, and before `on_finished`."""
        ...

    def on_finished(self) -> None:
        """All sequences have a finish reason and no longer change."""
        ...

    def on_failed(self, error: BaseException) -> None:
        """The request failed; no event follows."""
        ...


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
