"""What an epoch asks of sampler and learner, and how long they take for it."""

from dataclasses import dataclass
from math import ceil

from nat.sizing.forecast import Speed
from nat.sizing.memory import Workload
from nat.sizing.rules import usual_optimizer_steps
from nat.wire.training import WireModel

CHARACTERS_PER_TOKEN = 4
"""Of English in the usual tokenizers."""
ASSUMED_ANSWER = 256
"""Tokens of an answer, if nothing limits it and no run has shown it."""


class RolloutLoad(WireModel):
    """What a rollout takes on average; what was seen in a run, or assumed before the first one."""

    calls: float
    row_tokens: float
    """Tokens of its conversations, each counted once."""
    sampled_tokens: float
    longest_row: int
    """Tokens of the longest conversation of all rollouts."""
    basis: str
    """Where these figures come from."""
    assumed: bool = False
    """True before the first run, when a rollout takes at least this."""
    seconds: float | None = None
    """Of that epoch, with agent, tools and evaluators, per rollout."""

    def workload(self, rollouts: int, *, at_a_time: int) -> Workload:
        """The sizes of an epoch with so many rollouts."""
        tokens = ceil(rollouts * self.row_tokens)
        return Workload(
            chats=max(1, min(rollouts, at_a_time)),
            chat_tokens=self.longest_row,
            row_tokens=self.longest_row,
            step_tokens=max(self.longest_row, tokens // usual_optimizer_steps(rollouts)),
            sampled_share=min(1.0, self.sampled_tokens / self.row_tokens),
            epoch_tokens=tokens,
        )


@dataclass(frozen=True)
class EpochSeconds:
    """Seconds of an epoch, without those of the agent, its tools and the evaluators."""

    sampling: float | None
    """None if the sampler was too slow to be measured."""
    training: float

    @property
    def total(self) -> float:
        return (self.sampling or 0.0) + self.training


def assumed_load(prompt_characters: int, max_tokens: int | None) -> RolloutLoad:
    """The load of a rollout that makes one call, whose prompt is the longest example."""
    prompt, answer = ceil(prompt_characters / CHARACTERS_PER_TOKEN), max_tokens or ASSUMED_ANSWER
    limit = "of `max_tokens`" if max_tokens else f"of {ASSUMED_ANSWER} tokens (`max_tokens` is not set)"
    return RolloutLoad(
        calls=1,
        row_tokens=prompt + answer,
        sampled_tokens=answer,
        longest_row=prompt + answer,
        basis="assumed before the first run: one call per rollout, with the longest example as its prompt "
        f"({CHARACTERS_PER_TOKEN} characters per token) and an answer {limit}",
        assumed=True,
    )


def epoch_seconds(speed: Speed, load: RolloutLoad, rollouts: int, optimizer_steps: int) -> EpochSeconds:
    """The time of an epoch at the measured speed."""
    sampling = None
    if speed.chats:
        prompts = rollouts * (load.row_tokens - load.sampled_tokens) / speed.prompt_tokens_per_second
        sampling = prompts + rollouts * load.sampled_tokens / speed.chats * speed.step_seconds
    trained = rollouts * load.row_tokens / speed.trained_tokens_per_second
    return EpochSeconds(sampling, trained + optimizer_steps * speed.optimizer_seconds)
