"""The records of a run: one per job, epoch and validation, and the summary at its end.

An epoch's number counts the updates before it, from 0: the rollouts and the validation of epoch 3 use the weights after
3 epochs of training. That holds in code, journal, metrics and file names. Log, progress, messages and plot count epochs
from 1; they use `epoch_number` and `after_epoch`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from nat.data_models.llm_usage import LLMUsage, Purpose
from nat.data_models.rollout_failure import FAILURES, FailureCount, total
from nat.data_models.score import is_score, mean
from nat.wire.training import JobStatus


def epoch_number(epoch: int) -> int:
    """The epoch's number for people, who count from 1."""
    return epoch + 1


def epochs_text(first: int, count: int) -> str:
    """Some epochs in a row, for people."""
    return f"epoch {epoch_number(first)}" if count == 1 else f"epochs {epoch_number(first)} to {first + count}"


def after_epoch(epochs_done: int) -> str:
    """Which weights were validated, for people."""
    return f"after epoch {epochs_done}" if epochs_done else "before training"


class RunRecord(BaseModel):
    """Base of the records: they are immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


PurposeUsage = dict[Purpose, dict[str, LLMUsage]]
"""What calls took, by purpose and LLM."""


class SparseRecord(RunRecord):
    """A record with fields that few runs have; its JSON omits them where they are empty."""

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        sparse = {"phase", "phases", "copies", "usage", "steps", "budget", "cost", "policy_versions", "others"}
        sparse |= {"commonest", "expected", "scores_beside"}
        return {name: value for name, value in fields.items() if value or name not in sparse}


class TrainingPhase(RunRecord):
    """A phase of training as it begins; the next one begins where it ends."""

    name: str
    first_epoch: int = Field(ge=0)
    num_epochs: int = Field(ge=1)
    """As planned; early stopping may end it before."""

    def __str__(self) -> str:
        return f"Phase {self.name}: {epochs_text(self.first_epoch, self.num_epochs)}"


class RunState(StrEnum):
    """Life of a run. A killed process leaves `running` behind; `--resume` makes any of the others that again."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """SIGTERM ended its process, which left it to be gone on with."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class Phase(StrEnum):
    """Why a rollout was made."""

    TRAIN = "train"
    VALIDATION = "validation"


class JobRecord(SparseRecord):
    """One training job; recorded when it is submitted, and again under the same id when it ends."""

    id: str
    epoch: int = Field(ge=0)
    backend: str
    status: JobStatus
    num_groups: int = Field(ge=0)
    num_trajectories: int = Field(ge=0)
    num_rows: int = Field(default=0, ge=0)
    tokens_trained: int = Field(default=0, ge=0)
    """Sampled tokens that carried loss, as the job reports them; else those that were submitted."""
    began_with: str | None = None
    """The weights that it trains, of a server that knows no job's id: if it has others later, the job has trained."""
    policy_version: str | None = None
    """The weights that it produced."""
    metrics: dict[str, float] = {}
    steps: list[dict[str, float]] = []
    """Metrics of each optimizer step; empty if the backend does not report them."""
    training: dict[str, JsonValue] | None = None
    """The algorithm and the settings that the backend used; None if it does not report them."""
    message: str | None = None
    """Why it failed, or the backend's message."""
    submitted_at: AwareDatetime
    finished_at: AwareDatetime | None = None


RELATIVE = "reward/relative"
"""Metric of an epoch whose scores compare the generations of an example."""


def count_of(metrics: Mapping[str, float], name: str, otherwise: int) -> int:
    """A count that a backend reports; `otherwise` if it is missing or not a count."""
    value = metrics.get(name, -1.0)
    return round(value) if isfinite(value) and value >= 0 else otherwise


class EpochRecord(SparseRecord):
    """One finished epoch: a line of `training_metrics.jsonl`, whose field names other programs read."""

    epoch: int = Field(ge=0)
    phase: str | None = None
    """Name of the phase of training; None in a run without phases."""
    timestamp: AwareDatetime
    run_id: str
    avg_reward: float
    """Over all trajectories of the epoch, before the curriculum chose among them."""
    min_reward: float
    max_reward: float
    num_trajectories: int = Field(ge=0)
    num_groups: int = Field(ge=0)
    filtered_trajectories: int = Field(ge=0)
    """Trajectories that were trained on."""
    filtered_groups: int = Field(ge=0)
    filtered_avg_reward: float | None = None
    """Over the trajectories that were trained on; None if there was none."""
    filtered_min_reward: float | None = None
    filtered_max_reward: float | None = None
    curriculum_percentile: float = Field(default=1.0, gt=0, le=1)
    """Share of the groups that the curriculum admits; 1 when it is off."""
    curriculum_state: dict[str, Any] | None = None
    """As `Trainer.get_curriculum_state()` gives it; None when the curriculum is off."""
    num_rollouts: int = Field(default=0, ge=0)
    """Rollouts that were started, the failed ones included."""
    played: bool = True
    """False if the trajectories are not rollouts of this run but come from a file, and their rewards with them."""
    left_out: dict[str, int] = {}
    """Rollouts that were not trained on, by cause."""
    failures: list[FailureCount] = []
    """The failed rollouts of `left_out`, with the most common error of each cause."""
    groups_without_difference: int = Field(default=0, ge=0)
    """Groups whose rewards are all equal: they carry no learning signal."""
    seconds: float = Field(default=0.0, ge=0)
    examples: dict[str, float] = {}
    """Mean score of each example that has one."""
    usage: PurposeUsage = {}
    """Calls and tokens, as far as servers report them."""
    policy_versions: dict[str, int] = {}
    """Answers of its rollouts by the weights that sampled them, as far as servers name them."""
    scores_beside: dict[str, float] = {}
    """Mean score by each evaluator that is not the reward."""
    broken_by: dict[str, int] = {}
    """Calls that did not continue the tokens before them, by cause."""
    metrics: dict[str, float] = {}
    """All other metrics, by name."""

    @property
    def trained_groups(self) -> int:
        """Groups that the job trained, as it reports them; else those that were submitted."""
        return count_of(self.metrics, "train/trained_groups", self.filtered_groups)

    @property
    def result(self) -> str:
        """The mean reward; of an epoch that trained on a file, whose rewards say nothing of the model, the loss."""
        if self.played:
            return f"{self.avg_reward:.3f}"
        return f"loss {self.metrics['train/loss']:.3f}" if "train/loss" in self.metrics else ""

    @property
    def relative(self) -> bool:
        """True if the scores compare generations with each other, so that their mean says nothing about progress."""
        return RELATIVE in self.metrics

    @property
    def num_failed(self) -> int:
        """Rollouts that raised an error, timed out or got no score."""
        return sum(self.left_out.get(cause, 0) for cause in FAILURES)

    @property
    def share_without_difference(self) -> float:
        return self.groups_without_difference / self.num_groups if self.num_groups else 0.0


def scores_beside(epochs: Iterable[EpochRecord]) -> dict[str, dict[int, float]]:
    """Mean scores by evaluators that are not the reward: by the evaluator's name, then by the number of the epoch."""
    found: dict[str, dict[int, float]] = {}
    for epoch in epochs:
        for name, score in epoch.scores_beside.items():
            found.setdefault(name, {})[epoch_number(epoch.epoch)] = score
    return found


def played_epochs(epochs: Sequence[EpochRecord]) -> Sequence[EpochRecord]:
    """The epochs whose rewards are those of rollouts; none if every one trained on a file."""
    return [epoch for epoch in epochs if epoch.played]


class CommonAnswer(RunRecord):
    """The most frequent one of several answers."""

    text: str
    """Its beginning."""
    share: float
    """Of the answers that are this one."""
    score: float | None = None
    """Mean of the rollouts that gave it; None of an expected one."""


class ValidationRecord(SparseRecord):
    """Scores of the held-out examples with the weights after `epoch` epochs of training."""

    epoch: int = Field(ge=0)
    timestamp: AwareDatetime
    scores: dict[str, float | None]
    """Mean score of each example's repetitions; None where all of them failed."""
    copies: dict[str, str] = {}
    """Examples whose row repeats that of another one, and that one."""
    num_rollouts: int = Field(default=0, ge=0)
    """Rollouts of the examples, the failed ones included; 0 if a trainer reported only the mean."""
    failures: list[FailureCount] = []
    """Why examples have no score, with the most common error of each cause."""
    seconds: float = Field(default=0.0, ge=0)
    usage: PurposeUsage = {}
    """As that of an epoch."""
    commonest: CommonAnswer | None = None
    """What the model said most often; None with few examples."""
    expected: CommonAnswer | None = None
    """The most frequent one of the expected answers, of examples that repeat no other; None if rows have none."""

    @property
    def scored(self) -> dict[str, float]:
        """The examples that have a score."""
        return {name: score for name, score in self.scores.items() if score is not None and is_score(score)}

    @property
    def rewards(self) -> list[float]:
        """Their scores."""
        return list(self.scored.values())

    @property
    def num_examples(self) -> int:
        return len(self.rewards)

    @property
    def num_failed(self) -> int:
        return len(self.scores) - len(self.rewards)

    @property
    def avg_reward(self) -> float | None:
        """The mean of these alone; `same_examples` compares validations."""
        return mean(self.rewards) if self.rewards else None

    @property
    def statistics(self) -> dict[str, float | None]:
        """The statistics in files and for trainers."""
        return {
            "avg_reward": self.avg_reward,
            "min_reward": min(self.rewards, default=None),
            "max_reward": max(self.rewards, default=None),
            "num_examples": self.num_examples,
            "num_failed": self.num_failed,
        }


def score_range(scores: Iterable[float]) -> tuple[float, float]:
    """The lowest and the highest score, of at least one; of equal ones, 0 and 1 count as seen, too."""
    low, high = min(known := list(scores)), max(known)
    return (low, high) if low < high else (min(low, 0.0), max(high, 1.0))


def same_examples(validations: Sequence[ValidationRecord]) -> list[dict[str, float]]:
    """The scores of each validation on the examples that have one in any; a failed one counts as the lowest seen."""
    known = [record.scored for record in validations]
    seen = {example for own in known for example in own}
    lowest = score_range(score for own in known for score in own.values())[0] if seen else 0.0
    pairs = zip(validations, known, strict=True)
    return [{name: own.get(name, lowest) for name in record.scores if name in seen} for record, own in pairs]


def held_out_means(validations: Sequence[ValidationRecord]) -> dict[int, float]:
    """The mean score after so many epochs, each over the same examples."""
    pairs = zip(validations, same_examples(validations), strict=True)
    return {record.epoch: mean([*scores.values()]) for record, scores in pairs if scores}


def total_of(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord]) -> list[FailureCount]:
    """Failed rollouts of the whole run, by cause."""
    return total([*(epoch.failures for epoch in epochs), *(record.failures for record in validations)])


def num_rollouts(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord]) -> int:
    """Rollouts of the whole run, the failed ones included."""
    return sum(epoch.num_rollouts for epoch in epochs) + sum(record.num_rollouts for record in validations)


class Verdict(StrEnum):
    """Whether the held-out score changed, by its interval."""

    IMPROVED = "improved"
    NOT_SHOWN = "not shown"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    """Examples that fail on one side only decide it."""


class BestMeasure(StrEnum):
    """The score that decides which epoch's weights are the best."""

    HELD_OUT = "held-out score"
    TRAINING = "training reward"


class BestEpoch(SparseRecord):
    """The weights with the highest score so far; of equal ones the earliest."""

    epoch: int = Field(ge=0)
    """Epochs of training behind the weights; 0 for those that the run started from."""
    score: float
    """Mean over the held-out examples; without a validation dataset, mean reward of their training rollouts. A failed
    one counts as the lowest score seen."""
    measure: BestMeasure
    weights: str | None = None
    """The backend's name for them; None if it did not keep them."""
    checkpoint: str | None = None
    """The checkpoint's folder, relative to the run's folder if it lies there; None if there is none."""
    others: list[str] = []
    """Likewise, the checkpoints of further models that the run trains; absent from files if there are none."""

    def __str__(self) -> str:
        return f"{self.measure} {self.score:.3f} {after_epoch(self.epoch)}"


class Finding(RunRecord):
    """A condition that keeps a run from learning, with its numbers and what to change."""

    cause: str
    """Its name in the catalogue of conditions."""
    title: str
    share: float = Field(ge=0, le=1)
    """Share of the learning signal that it takes away; what the stages before it take is not counted."""
    seen: str
    healthy: str
    """The range in which the number would be healthy."""
    remedy: str

    def __str__(self) -> str:
        return f"{self.title}: {self.seen} (healthy: {self.healthy}). {self.remedy}"

    @property
    def sentence(self) -> str:
        """What was seen, as a sentence."""
        return f"{self.seen[:1].upper()}{self.seen[1:]}."


class HeldOutChange(RunRecord):
    """What training changed: the held-out scores before and after; None without two validations to compare."""

    before: float | None = None
    """Mean over the examples with a score before or after; one that failed counts as the lowest score seen."""
    after: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    """Of the difference, paired by example; it covers all that failed examples may have scored."""
    verdict: Verdict | None = None
    num_examples: int | None = None
    """Examples with a score before or after."""
    num_failing_since: int | None = None
    """Of these, the examples without a score after training."""
    num_failed_before: int | None = None
    """Likewise, before training."""


class PhaseVerdict(HeldOutChange):
    """What a phase of training changed, from its beginning to its end."""

    name: str
    first_epoch: int = Field(ge=0)
    epochs: int = Field(ge=0)
    """Finished epochs of this phase."""
    sentence: str | None = None
    """The verdict in words, with its numbers."""

    def __str__(self) -> str:
        span = epochs_text(self.first_epoch, self.epochs) if self.epochs else "no finished epoch"
        return f"{self.name}, {span}: {self.sentence or 'no verdict'}"


class RunSummary(HeldOutChange, SparseRecord):
    """`summary.json`; the fields about held-out examples are None in a run without a validation dataset."""

    run_id: str
    confidence: float | None = None
    num_left_out: int | None = None
    """Examples without a score both times."""
    judged_epoch: int | None = None
    """Epochs of training behind the weights that the verdict is about; None without a verdict."""
    epochs: int = Field(ge=0)
    state: RunState = RunState.COMPLETED
    ended_early: str | None = None
    """Why the run failed, was interrupted or canceled, or ended before its last epoch; None if it did not."""
    seconds: float = Field(ge=0)
    rollouts: int = Field(default=0, ge=0)
    """Rollouts in training and validation, the failed ones included."""
    failures: list[FailureCount] = []
    """Rollouts that could not be trained on or scored, by cause, with an error of each."""
    failures_file: str | None = None
    """The tracebacks, relative to the run's folder; None if nothing failed."""
    tokens_trained: int = Field(ge=0)
    """Sum over the jobs; a token counts once, however many passes train on it."""
    row_tokens: int = Field(default=0, ge=0)
    """Tokens of all rows that were trained on, prompts included; 0 if the backend does not report them."""
    packed_tokens: int = Field(default=0, ge=0)
    """Tokens of these rows that one pass over each batch computed: rows of a group share their prefixes."""
    unique_tokens: int = Field(default=0, ge=0)
    """The fewest tokens that a pass could have computed."""
    broken_by: dict[str, int] = {}
    """Calls in all epochs whose prompt did not continue the tokens before it, by cause."""
    cost: float | None = None
    """Of the calls of all epochs and validations, by `finetuning.budget.prices`; None without prices."""
    model: str | None = None
    """The trained model's directory, relative to the run's folder; None if the backend keeps it."""
    served_model: str | None = None
    """The trained model's name and server, where a server keeps it."""
    plot: str | None = None
    """The plot, relative to the run's folder."""
    best: BestEpoch | None = None
    """The weights that scored highest, and their checkpoint."""
    best_caveat: str | None = None
    """How much of the best score may be luck, since it is the highest of several."""
    best_model: str | None = None
    """The folder of the best weights as a plain model, relative to the run's folder, if `finetuning.export_best` is
    set."""
    causes: list[Finding] = []
    """Why the reward stayed flat, the likeliest cause first; empty for a healthy run."""
    next_step: str | None = None
    """What to change, by the likeliest cause."""
    phases: list[PhaseVerdict] = []
    """The phases of training with their verdicts, in order."""


class RunInfo(RunRecord):
    """The run as a whole, as the journal records it."""

    run_id: str
    created_at: AwareDatetime
    state: RunState
    message: str | None = None
    """Why it failed, was interrupted or canceled, or ended before its last epoch."""
    finished_at: AwareDatetime | None = None
    config_text: str
    """The resolved configuration as YAML, secrets left out."""


class RunIdentity(RunRecord):
    """What a run depends on."""

    parts: dict[str, str]
    """Values of settings by their keys, and digests of data."""
