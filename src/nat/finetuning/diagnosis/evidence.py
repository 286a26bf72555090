"""The numbers of a run that its diagnosis reads; shares are from 0 to 1.

What the records do not have is None: a backend need not report all metrics, and journals of earlier releases lack some.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nat.finetuning.diagnosis.held_out import HeldOut
from nat.finetuning.diagnosis.trend import LEARNED, Trend
from nat.finetuning.diagnosis.updates import Updates
from nat.finetuning.rollout_statistics import ScoreSpread
from nat.runs.records import Verdict
from nat.wire.rewards import equal
from nat.wire.training import Compares

HARD, EASY = 0.05, 0.95
"""Mean scores, as shares of the way from the lowest to the highest. At .05, half of the groups of sixteen rollouts have
no success, and sixteen is the most that common practice recommends where success is rare."""


@dataclass(frozen=True)
class Evidence:
    """One run, in numbers."""

    num_epochs: int
    num_rollouts: int
    played: bool = True
    """False if the run trained on a file, so that its rewards in training do not tell how good the model is."""
    left_out: Mapping[str, float] = field(default_factory=dict)
    """Share of the rollouts by cause."""
    error: str | None = None
    """The most frequent failure of a rollout."""
    functions: Mapping[str, int] = field(default_factory=dict)
    """LLM calls of one epoch by function."""
    models: Mapping[str, int] = field(default_factory=dict)
    """LLM calls of one epoch by model, under all names of it."""
    target_functions: Sequence[str] = ()
    target_model: str | None = None
    without_calls: float = 0.0
    without_logprobs: float = 0.0
    """Share of the calls."""
    untrainable_calls: float = 0.0
    untempered_calls: float = 0.0
    sampling: str | None = None
    """The most frequent sampling option that kept calls out."""
    trained_tokens: float | None = None
    """Share of the sampled tokens."""
    generations: float = 0.0
    """Scored rollouts per example and epoch."""
    compares: Compares = "group"
    num_examples: int = 0
    lowest: float | None = None
    highest: float | None = None
    truncated: float = 0.0
    truncated_lowest: float = 0.0
    """Of these, the share with the lowest score."""
    equal_outputs: float = 0.0
    """Share of the examples, in the first third of the epochs."""
    equal_groups: float = 0.0
    equal_between: float = 0.0
    """Share of the groups with equal scores that are neither the lowest nor the highest."""
    outside_curriculum: float = 0.0
    """Share of the groups with a difference that the curriculum left out."""
    untrained: float = 0.0
    """Share of the submitted groups that the backend did not train."""
    hard: float = 0.0
    """Share of the examples whose mean score is below `HARD`, over all epochs."""
    easy: float = 0.0
    """Share of the examples whose mean score is above `EASY`, in the first third of the epochs."""
    spread: ScoreSpread = field(default_factory=ScoreSpread)
    row_spread: ScoreSpread = field(default_factory=ScoreSpread)
    length_correlation: float | None = None
    tokens: tuple[float, float] | None = None
    """Sampled tokens per rollout, in the first and in the last third."""
    relative: bool = False
    """True if the scores in training compare generations, so that they cannot show whether the model learns."""
    trend: Trend | None = None
    updates: Updates | None = None
    held_out: HeldOut | None = None

    @property
    def constant(self) -> bool:
        """True if every score of the run is the same number."""
        return self.lowest is not None and self.highest is not None and equal([self.lowest, self.highest])

    @property
    def has_learned(self) -> bool:
        """True if the training reward or the held-out score rose by a fair part of what was possible.

        With relative scores, the held-out score must have risen, or there is none.
        """
        if not self.played:
            return self.improved
        if self.relative:
            return self.held_out is None or self.improved
        if self.trend is None:
            return False
        held_out = self.held_out.comparison if self.held_out else None
        possible = self.trend.highest - (held_out.before if held_out else 0.0)
        shown = held_out is not None and self.improved and held_out.difference >= LEARNED * possible
        return shown or self.trend.learned

    @property
    def improved(self) -> bool:
        """True if the held-out score is shown to have risen."""
        return self.held_out is not None and self.held_out.comparison.verdict is Verdict.IMPROVED
