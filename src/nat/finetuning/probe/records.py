"""What a probe found: the results of each example, the estimates, and the judgement."""

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from statistics import fmean, pstdev

from pydantic import BaseModel, ConfigDict, computed_field

from nat.data_models.rollout_failure import FailureCount
from nat.finetuning.diagnosis.facts import Noise, Prospect, ReferenceScores
from nat.finetuning.proposals import Proposal
from nat.runs.records import Finding
from nat.sizing.load import EpochSeconds

Interval = tuple[float, float]


class ProbeRecord(BaseModel):
    """Base of the records."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ExampleResult(ProbeRecord):
    """The rollouts of one example."""

    id: str
    rewards: list[float]
    """Of the rollouts that training could use."""
    left_out: int = 0
    """Rollouts that training could not use."""
    truncated: int = 0
    """Rollouts in which an answer hit its token limit."""
    differs: bool
    """True if its group has a difference in reward (or return), as training compares them."""

    @computed_field  # type: ignore[prop-decorator] # pydantic's order of decorators
    @cached_property
    def mean(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None

    @computed_field  # type: ignore[prop-decorator] # likewise
    @cached_property
    def spread(self) -> float | None:
        """Standard deviation of the rewards."""
        return pstdev(self.rewards) if self.rewards else None


class ProbeAnswer(ProbeRecord):
    """One rollout in short."""

    example_id: str
    question: str
    output: str
    reward: float


class Measured(ProbeRecord):
    """Everything that was counted and estimated."""

    config_file: str
    model: dict[str, str]
    """Each LLM's key and where it is served."""
    reward: str
    """The evaluator."""
    num_examples: int
    """Examples in the dataset."""
    examples: list[ExampleResult]
    """Those that were played."""
    num_rollouts: int
    left_out: dict[str, int]
    """Rollouts that training could not use, by cause."""
    failures: list[FailureCount]
    stops: str | None = None
    """Why a run would end after these rollouts; None if it would train."""
    lost_remedy: str | None = None
    """For the most frequent cause of lost rollouts."""
    metrics: dict[str, float]
    """As of an epoch: docs/reference/metrics.md."""
    seconds_per_rollout: float
    """While others were played at the same time."""
    longest_answer: int
    """Most tokens that a rollout sampled."""
    across_groups: bool = False
    """True if the algorithm compares rewards of the whole batch."""
    configured_generations: int | None
    """num_generations of the YAML, if it has one."""
    noise: Noise | None = None
    """None if there was nothing to compare, or `--rescores 0`."""
    references: ReferenceScores | None = None
    """Only if all rewards are equal and the dataset has expected answers."""
    answers: list[ProbeAnswer] = []
    """A rollout with the lowest reward, and one with the highest."""
    prospects: list[Prospect] = []
    """Empty if no rollout can be trained on."""
    warnings: list[str] = []

    @property
    def rewards(self) -> list[float]:
        return [reward for example in self.examples for reward in example.rewards]

    @property
    def groups(self) -> Sequence[ExampleResult]:
        """The examples with at least one rollout to train on."""
        return [example for example in self.examples if example.rewards]

    @property
    def num_differing(self) -> int:
        return sum(example.differs for example in self.examples)

    @property
    def truncated(self) -> float:
        return self.metrics.get("rollout/truncated", 0.0)


class Signal(StrEnum):
    """Whether training on these examples has something to learn from."""

    FOUND = "signal"
    WEAK = "weak signal"
    NONE = "no signal"


class Ending(StrEnum):
    """Why a probe plays no further example."""

    PLAYED = "all were played"
    CLEAR = "the answer is clear"
    TIME = "the time is over (more --minutes play more examples)"


class ProbeReport(ProbeRecord):
    """The measurements and the judgement."""

    signal: Signal
    sentence: str
    """The verdict in plain words."""
    findings: list[Finding]
    """The likeliest first."""
    advised_generations: int | None
    """None if no rollout can be trained on."""
    interval: Interval | None
    """95 % interval of the share of groups with a difference, with this number of generations; None without groups."""
    measured: Measured
    seconds: float = 0.0
    """From the start to the last rollout, loading and second scores included."""
    pace: float = 0.0
    """Seconds per rollout of the largest round: the others leave places free, and the first one warms up."""
    ending: Ending = Ending.PLAYED
    epoch: EpochSeconds | None = None
    """What an epoch of training will take; None if it was not measured."""
    proposals: list[Proposal] = []
    """Values of settings that follow from the rollouts."""
