"""The records of a run: one per rollout, job, epoch and validation, and the summary at its end.

An epoch's number counts the updates before it, from 0; people read epochs from 1 (`nat.runs.epochs`).
"""

from collections.abc import Mapping
from enum import StrEnum
from math import isfinite
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from nat.data_models.conversation import ConversationRecord
from nat.data_models.rollout_failure import FailureCount
from nat.data_models.score import is_score, mean
from nat.runs.epochs import when
from nat.runs.left_out import LeftOutCause
from nat.wire.training import JobStatus, TrainingRow


class RunRecord(BaseModel):
    """Records do not change once made; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class RunState(StrEnum):
    """Life of a run; all but the first are final. A killed process leaves `running` behind."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class Phase(StrEnum):
    """Why a rollout was made."""

    TRAIN = "train"
    VALIDATION = "validation"


class RolloutRecord(RunRecord):
    """One run of the agent on one example, with all that was trained on or why it was not."""

    example_id: str
    generation: int = Field(ge=0)
    """Which of the example's rollouts in this epoch."""
    reward: float | None = None
    """None if the rollout failed or could not be scored; never a substitute number."""
    left_out: LeftOutCause | None = None
    """None if it was trained on (or, in a validation, scored)."""
    error: str | None = None
    """The type and message of what went wrong, if something did."""
    traceback: str | None = Field(default=None, exclude=True, repr=False)
    """Of the error; the journal keeps it once for each way to fail, not with every rollout."""
    messages: list[dict[str, Any]] = []
    """The conversations in OpenAI's shape, one after the other."""
    conversations: list[ConversationRecord] = []
    """How many there are, how long each is, and why it began."""
    output: str | None = None
    """What the workflow returned, as text."""
    reasoning: Any = None
    """What the evaluator said of the score; any JSON."""
    num_calls: int = Field(default=0, ge=0)
    """LLM calls, those of other functions and models included."""
    num_failed_calls: int = Field(default=0, ge=0)
    """Attempts at a call that brought no answer; a client's own retries count each."""
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    broken_prefixes: int = Field(default=0, ge=0)
    """Calls whose prompt did not continue the tokens before it, so that a new row began."""
    broken_by: dict[str, int] = {}
    """The same by cause."""
    truncated: bool = False
    """True if some completion stopped at its token limit: of the target, where one is set and was called."""
    rows: list[TrainingRow] = []
    """The exact token ids and sampler logprobs; empty if the server does not tell them."""
    functions: dict[str, int] = {}
    """LLM calls by the function that made them."""
    models: dict[str, int] = {}
    """LLM calls by model, under the names that `target_model` is compared with."""
    untrainable_calls: dict[str, dict[str, int]] = {}
    """Calls to the target that were left out for how they were sampled: by function, and by the fields that do it."""
    untempered_calls: dict[str, dict[str, int]] = {}
    """Calls that were sampled at another temperature than that of their log probabilities, likewise."""
    policy_versions: dict[str, int] = {}
    """Answers of the target, by the weights that sampled them; empty if the server does not name them."""
    seed: int | None = None
    seconds: float = Field(default=0.0, ge=0)


class JobRecord(RunRecord):
    """One training job as last seen; recorded when submitted, and again under the same id when it ended."""

    id: str
    epoch: int = Field(ge=0)
    backend: str
    status: JobStatus
    num_groups: int = Field(ge=0)
    num_trajectories: int = Field(ge=0)
    num_rows: int = Field(default=0, ge=0)
    tokens_trained: int = Field(default=0, ge=0)
    """Sampled tokens that carried loss, as the job reports it; those that were submitted if it does not."""
    policy_version: str | None = None
    """The weights that came out of it."""
    metrics: dict[str, float] = {}
    message: str | None = None
    """Why it failed, or what the backend said."""
    submitted_at: AwareDatetime
    finished_at: AwareDatetime | None = None


def count_of(metrics: Mapping[str, float], name: str, otherwise: int) -> int:
    """A count that a backend reports; `otherwise` if it reports none, or something that is none."""
    value = metrics.get(name, -1.0)
    return round(value) if isfinite(value) and value >= 0 else otherwise


class EpochRecord(RunRecord):
    """One finished epoch: a line of `training_metrics.jsonl`, whose field names plug-ins of others read."""

    epoch: int = Field(ge=0)
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
    left_out: dict[str, int] = {}
    """Rollouts that were not trained on, by cause."""
    failures: list[FailureCount] = []
    """Those of `left_out` that are nobody's choice, with the commonest error of each cause."""
    groups_without_difference: int = Field(default=0, ge=0)
    """Groups whose rewards are all equal: they carry no learning signal."""
    seconds: float = Field(default=0.0, ge=0)
    metrics: dict[str, float] = {}
    """Everything else, under the prefixes train/ rollout/ reward/ time/ drift/."""

    @property
    def trained_groups(self) -> int:
        """Groups that the job trained, as it reports it; those that were submitted if it does not."""
        return count_of(self.metrics, "train/trained_groups", self.filtered_groups)

    @property
    def share_without_difference(self) -> float:
        return self.groups_without_difference / self.num_groups if self.num_groups else 0.0


class ValidationRecord(RunRecord):
    """The held-out examples played with the weights after `epoch` epochs of training."""

    epoch: int = Field(ge=0)
    timestamp: AwareDatetime
    scores: dict[str, float | None]
    """Mean score of each example's repetitions; None where all of them failed."""
    num_rollouts: int = Field(default=0, ge=0)
    """Rollouts of the examples, the failed ones included; 0 where a trainer gave the mean alone."""
    failures: list[FailureCount] = []
    """Why examples have no score, with the commonest error of each cause."""
    seconds: float = Field(default=0.0, ge=0)

    @property
    def rewards(self) -> list[float]:
        """The scores there are; a failure is not among them."""
        return [score for score in self.scores.values() if score is not None and is_score(score)]

    @property
    def num_examples(self) -> int:
        return len(self.rewards)

    @property
    def num_failed(self) -> int:
        return len(self.scores) - len(self.rewards)

    @property
    def avg_reward(self) -> float | None:
        return mean(self.rewards) if self.rewards else None

    @property
    def min_reward(self) -> float | None:
        return min(self.rewards, default=None)

    @property
    def max_reward(self) -> float | None:
        return max(self.rewards, default=None)

    @property
    def statistics(self) -> dict[str, float | None]:
        """The numbers that files and trainers show of it."""
        return {
            "avg_reward": self.avg_reward,
            "min_reward": self.min_reward,
            "max_reward": self.max_reward,
            "num_examples": self.num_examples,
            "num_failed": self.num_failed,
        }


class Verdict(StrEnum):
    """Whether the held-out score changed, by its interval."""

    IMPROVED = "improved"
    NOT_SHOWN = "not shown"
    WORSE = "worse"


class BestMeasure(StrEnum):
    """By what the weights of an epoch are compared with those of others."""

    HELD_OUT = "held-out score"
    TRAINING = "training reward"


class BestEpoch(RunRecord):
    """The weights with the highest score so far; of equal ones the earliest."""

    epoch: int = Field(ge=0)
    """They are those after so many epochs; 0 are those that the run started from."""
    score: float
    """Mean over the held-out examples; without a validation dataset, mean reward of the rollouts that they played."""
    measure: BestMeasure
    weights: str | None = None
    """What the backend calls them; None if it did not keep them."""
    checkpoint: str | None = None
    """The checkpoint's folder, relative to the run's folder if it lies there; None if there is none."""

    def __str__(self) -> str:
        return f"{self.measure} {self.score:.3f} {when(self.epoch)}"


class RunSummary(RunRecord):
    """`summary.json`; the fields about held-out examples are None in a run without a validation dataset."""

    run_id: str
    before: float | None = None
    """Mean held-out score before training, over the examples that have a score before and after."""
    after: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    """Of the difference, paired by example."""
    confidence: float | None = None
    verdict: Verdict | None = None
    num_examples: int | None = None
    """Examples with a score both before and after."""
    num_left_out: int | None = None
    """Examples without a score before, after, or both."""
    epochs: int = Field(ge=0)
    seconds: float = Field(ge=0)
    rollouts: int = Field(default=0, ge=0)
    """Played in training and validation, the failed ones included."""
    failures: list[FailureCount] = []
    """Rollouts that could not be trained on or scored, by cause, with an error of each."""
    failures_file: str | None = None
    """The tracebacks, relative to the run's folder; None if nothing failed."""
    tokens_trained: int = Field(ge=0)
    """The sum over the jobs: each token once, however many passes went over it."""
    row_tokens: int = Field(default=0, ge=0)
    """Tokens of all rows that were trained on, prompts included; 0 if the backend does not tell."""
    packed_tokens: int = Field(default=0, ge=0)
    """Of these, what one pass over each batch computed: rows of a group share their beginnings."""
    unique_tokens: int = Field(default=0, ge=0)
    """The least that a pass could have computed."""
    broken_by: dict[str, int] = {}
    """Calls in all epochs whose prompt did not continue the tokens before it, by cause."""
    model: str | None = None
    """The trained model's directory, relative to the run's folder; None if the backend keeps it."""
    served_model: str | None = None
    """The trained model's name and server, where a server keeps it."""
    plot: str | None = None
    """The picture, relative to the run's folder."""
    best: BestEpoch | None = None
    """Which weights scored highest, and their checkpoint."""
    best_model: str | None = None
    """These weights as a plain model, relative to the run's folder, where `finetuning.export_best` asked for it."""
    next_step: str | None = None
    """What to try, where no improvement was shown."""


class RunInfo(RunRecord):
    """What the journal says of the run as a whole."""

    run_id: str
    created_at: AwareDatetime
    state: RunState
    message: str | None = None
    """Why it failed or was canceled."""
    finished_at: AwareDatetime | None = None
    config_text: str
    """The resolved configuration as YAML, secrets left out."""
