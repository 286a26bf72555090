"""What the epochs of a run do not say, taken from other records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from nat.runs.records import ValidationRecord
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import Compares


class Measurement(BaseModel):
    """Base of what a probe measures besides."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Noise(Measurement):
    """Differences between scores of the same output."""

    share: float
    """Share of the variance of the scores within groups that is found within outputs, too."""
    deviation: float
    """Standard deviation of the scores of the same output."""
    outputs: int
    """Outputs that were scored several times."""
    scores: int
    """Scores of each."""


class Prospect(Measurement):
    """What a number of generations would give."""

    generations: int
    share: float
    """Expected share of groups with a difference in reward."""
    signal: float
    """Signal per rollout, of at most 1."""


class ReferenceScores(Measurement):
    """Scores of answers that no model gave."""

    right: float
    """Mean score of the expected answers of the dataset."""
    wrong: float
    """Mean score of the expected answers of other examples."""


@dataclass(frozen=True)
class Facts:
    """The facts about one run or probe; none by default."""

    target_functions: Sequence[str] = ()
    target_model: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    """What stands in the settings of a remedy for its words in capitals."""
    wording: Mapping[str, str] = field(default_factory=dict)
    """Replaces what a remedy says of the latest run, such as the command that shows its rollouts."""
    compares: Compares = "group"
    last_rollouts: Sequence[RolloutRecord] = ()
    """Those of the last epoch that was played."""
    unfinished: bool = False
    """True if that epoch has no record, because the run ended in it."""
    validations: Sequence[ValidationRecord] = ()
    unsent: Sequence[str] = ()
    """Keys of prompts in the run's YAML that no call of the last epoch has."""
    unseen_words: float | None = None
    """Share of the words of a held-out example that no training example has."""
    usual_unseen: float | None = None
    """Share of the words of a training example that no other one has."""
    noise: Noise | None = None
    """Of outputs that a probe scored again."""
    references: ReferenceScores | None = None
    """Known by a probe whose rewards are all equal."""
    most_generations: Prospect | None = None
    """What a probe expects of the largest number of generations."""
