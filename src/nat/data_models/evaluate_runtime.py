"""The input and the result of an evaluation run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput
from nat.data_models.intermediate_step import IntermediateStep, TokenUsageBaseModel
from nat.data_models.llm_usage import LLMUsage
from nat.data_models.rollout_failure import RolloutFailure
from nat.files import UserPath, UserPathText


@dataclass(frozen=True)
class Examples:
    """A dataset that was read; evaluations play copies of its items."""

    dataset: DatasetBaseConfig
    items: Sequence[EvalInputItem]


UsageStatsLLM = TokenUsageBaseModel
"""Tokens of one model in one rollout."""


class UsageStatsItem(BaseModel):
    """Tokens and seconds of one rollout."""

    usage_stats_per_llm: dict[str, UsageStatsLLM] = {}
    total_tokens: int = 0
    runtime: float = 0.0
    """Seconds from its first to its last step."""
    min_timestamp: float = 0.0
    max_timestamp: float = 0.0
    llm_calls: int = 0


class UsageStats(BaseModel):
    """Tokens and seconds of an evaluation."""

    min_timestamp: float = 0.0
    max_timestamp: float = 0.0
    total_runtime: float = 0.0
    """Seconds from the first step of any rollout to the last step of any."""
    usage_stats_items: dict[str, UsageStatsItem] = {}


class EvaluationRunConfig(BaseModel):
    """One pass of a workflow over a dataset."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    config_file: UserPath | BaseModel
    """The YAML, or a configuration that is loaded already."""
    dataset: UserPathText | None = None
    """A file that replaces the configured dataset; its suffix names the format."""
    result_json_path: str = "$"
    """JSON path of the answer in the workflow's output."""
    endpoint: str | None = None
    """Where the workflow is served; it is built and played in this process if left out."""
    endpoint_timeout: int = Field(default=300, ge=1)
    """Time limit in seconds of a rollout at `endpoint`."""
    reps: int = Field(default=1, ge=1)
    """How often each row is run; above 1 the ids become `<id>_rep0`, `<id>_rep1` …"""
    override: tuple[tuple[str, str], ...] = ()
    """Dotted keys of the configuration and their new values."""
    write_output: bool = True
    """Write the report files."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The record of one rollout; `output` is valid unless `error` says why there is none."""

    item_id: str
    generation: int
    """Which pass over the data it belongs to, from 0."""
    output: Any
    """The workflow's result; None after a failure."""
    steps: list[IntermediateStep]
    """All steps in the order in which they happened, up to the failure if there was one."""
    error: RolloutFailure | None
    seed: int | None
    """Repeats the rollout and each of its calls; None if unseeded."""
    started_at: datetime
    seconds: float
    """Run time of the workflow; waiting for a free slot is not included."""

    @property
    def failed(self) -> bool:
        return self.error is not None


class EvaluationRunOutput(BaseModel):
    """Everything that an evaluation produced; failed rollouts are listed apart from scored ones."""

    workflow_output_file: Path | None = None
    evaluator_output_files: list[Path] = []
    workflow_interrupted: bool = False
    """True if at least one rollout has no output."""
    eval_input: EvalInput
    """All items with their outputs and steps; a failed one has no output."""
    evaluation_results: list[tuple[str, EvalOutput]] = []
    """Each evaluator's name and scores; failed rollouts are not among them."""
    failures: list[RolloutFailure] = []
    """The failures of the rollouts that have no output."""
    rollouts: list[Rollout] = []
    """One per item, in their order, the failed ones too."""
    usage_stats: UsageStats | None = None
    judge_usage: dict[str, LLMUsage] = {}
    """What the evaluators' own calls took, by LLM."""
    profiler_results: Any | None = None
    """Always None here; other tools of the toolkit set it."""
    failures_file: Path | None = None
    """Tracebacks, one for each kind of failure of rollouts and evaluators; None if nothing failed."""
    config_effective_file: Path | None = None
    config_metadata_file: Path | None = None

    def results_of(self, evaluator: str) -> EvalOutput | None:
        """The scores of one evaluator, None if no evaluator has that name."""
        return dict(self.evaluation_results).get(evaluator)
