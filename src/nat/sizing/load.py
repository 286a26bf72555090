"""What an epoch asks of sampler and learner, and how long they take for it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
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
    different_tokens: float | None = None
    """Of `row_tokens`, what the generations of an example leave if equal beginnings count once; None if not known."""
    rollouts: int = 0
    """Those that were played."""
    longest_answer: int | None = None
    """Tokens of the longest answer; None if answers were cut off."""
    max_tokens: int | None = None
    """Limit of an answer at that time."""
    basis: str
    """Where these figures come from."""
    assumed: bool = False
    """True before the first rollout was played."""
    seconds: float | None = None
    """Of playing and scoring, with agent and tools, per rollout, while others are played; None if not measured."""
    update_seconds: float | None = None
    """Of the rest of an epoch, per rollout; None if not measured."""
    groups: int = 0
    """Those that were compared; 0 if not known."""
    differing: int = 0
    """Of these, the ones with a difference in reward, which are trained on."""
    rising: int = 0
    """Epochs of a run whose reward still rose beyond chance in the last third of them; 0 for none."""

    def holds_with(self, max_tokens: int | None) -> bool:
        """Whether the load is that of another limit, too: of the answers none meets either."""
        longest = self.longest_answer
        return max_tokens == self.max_tokens or (longest is not None and longest <= (max_tokens or longest))

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
    """Seconds of an epoch."""

    rollouts: float
    """With those of the agent, its tools and the evaluators."""
    training: float

    @property
    def total(self) -> float:
        return self.rollouts + self.training


def assumed_load(prompt_characters: int, limits: Mapping[str, int | None]) -> RolloutLoad:
    """The load of a rollout that calls each trained LLM once; `limits` has their `max_tokens`.

    All prompts are as long as the longest example.
    """
    prompt = ceil(prompt_characters / CHARACTERS_PER_TOKEN)
    answers = [limit or ASSUMED_ANSWER for limit in limits.values()]
    bounds = (
        f"the {limit} tokens of llms.{name}.max_tokens"
        if limit
        else f"{ASSUMED_ANSWER} tokens (llms.{name}.max_tokens is not set)"
        for name, limit in limits.items()
    )
    calls = "one call per rollout" if len(limits) == 1 else f"one call of each of {', '.join(limits)} per rollout"
    return RolloutLoad(
        calls=len(answers),
        row_tokens=prompt * len(answers) + sum(answers),
        sampled_tokens=sum(answers),
        longest_row=prompt + max(answers),
        basis=f"assumed, since nothing was played: {calls}, with the longest example as its prompt "
        f"({CHARACTERS_PER_TOKEN} characters per token) and an answer of {', '.join(bounds)}",
        assumed=True,
    )


def different_tokens(rows: Iterable[Sequence[int]]) -> int:
    """The tokens of some rows, equal beginnings counted once."""
    ordered = sorted(map(list, rows))
    shared = (takewhile(lambda both: both[0] == both[1], zip(*pair, strict=False)) for pair in pairwise(ordered))
    return sum(map(len, ordered)) - sum(len(list(equal)) for equal in shared)


def epoch_seconds(speed: Speed | None, load: RolloutLoad, rollouts: int, optimizer_steps: int) -> EpochSeconds | None:
    """The time of an epoch: rollouts as they were played, updates as in a run or else at the measured speed.

    None before a rollout was played, and if nothing is known of updates: what an agent, its tools and its scores take
    follows from nothing else.
    """
    if load.seconds is None:
        return None
    if load.update_seconds is not None:
        return EpochSeconds(rollouts * load.seconds, rollouts * load.update_seconds)
    if speed is None:
        return None
    share = load.differing / load.groups if load.groups else 1.0
    trained = rollouts * share * (load.different_tokens or load.row_tokens) / speed.trained_tokens_per_second
    return EpochSeconds(rollouts * load.seconds, trained + optimizer_steps * speed.optimizer_seconds)
