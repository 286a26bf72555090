"""The `eval` section of a YAML."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from nat.data_models.common import TypedBaseModel
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.files import UserPath, UserPathText


class EvalModel(BaseModel):
    """Base of the section's models; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class EvalFilterEntryConfig(EvalModel):
    """The accepted values of each column; a text may be a pattern with `*` and `?`."""

    field: dict[str, list[Any]] = {}
    """Column name → values or patterns; a row matches if each column has one of its values."""


class EvalFilterConfig(EvalModel):
    """Keep the rows of the allow list, then drop those of the deny list."""

    allowlist: EvalFilterEntryConfig | None = None
    """Keep only rows that match all of these columns."""
    denylist: EvalFilterEntryConfig | None = None
    """Drop rows that match any of these columns."""


class EvalDatasetStructureConfig(EvalModel):
    """The meaning of columns."""

    disable: bool = False
    """Pass the whole row to the workflow as JSON text, without an expected answer."""
    question_key: str = "question"
    """The column with the workflow's input."""
    answer_key: str = "answer"
    """The column with the expected answer."""
    generated_answer_key: str = "generated_answer"
    """The column of the workflow's answer in reports."""
    trajectory_key: str = "intermediate_steps"
    """The column of the run's steps in reports."""
    expected_trajectory_key: str = "expected_intermediate_steps"
    """The column with the expected steps."""


class DatasetBaseConfig(TypedBaseModel):
    """A dataset, under `eval.general.dataset`; its `_type` is the file format."""

    file_path: UserPath | UserPathText | None = None
    """The file; `--dataset` on the command line replaces it."""
    id_key: str = "id"
    """The column with the row's id; without this column the row number is the id."""
    structure: EvalDatasetStructureConfig = EvalDatasetStructureConfig()
    """The meaning of columns."""
    filter: EvalFilterConfig | None = None
    """Which rows to use; default: all."""


class EvalOutputConfig(EvalModel):
    """The folder of the reports."""

    dir: UserPath | None = None
    """Replaces `eval.general.output_dir`."""
    cleanup: bool = False
    """First delete the reports of an earlier evaluation."""


class RayRollouts(EvalModel):
    """Play rollouts in processes of a Ray cluster."""

    ray: str = "auto"
    """Address of the cluster, such as `10.0.0.1:6379`; `auto`: the one that `RAY_ADDRESS` names or that runs on this
    machine, or else one that lives as long as the run."""
    workers: int = Field(ge=1)
    """Processes, each with a workflow of its own; together they play `eval.general.max_concurrency` rollouts."""
    resources_per_worker: dict[str, float] = {"CPU": 1.0}
    """What Ray reserves for a process, by Ray's names."""


class EvalGeneralConfig(EvalModel):
    """How a dataset is run through the workflow."""

    max_concurrency: int = Field(default=8, ge=1)
    """Concurrent rollouts, over all generations together. If left out and all LLMs are `local`: as many as the smallest
    `max_num_seqs`, unless programs or a service play them."""
    item_timeout: float | None = Field(default=600.0, gt=0)
    """Time limit of a rollout in seconds; null for no limit."""
    scoring_timeout: float | None = Field(default=300.0, gt=0)
    """Time limit in seconds for the score of an answer; null for no limit."""
    outage_timeout: float = Field(default=600.0, ge=0)
    """Seconds that calls wait for an LLM's server that refuses connections or has no capacity; then the evaluation or
    the run ends. A waiting call moves its rollout's time limit. 0: calls do not wait, and fail after the LLM's
    `max_retries`."""
    output_dir: UserPath = Path(".tmp/nat/eval")
    """Folder of the reports."""
    output: EvalOutputConfig | None = None
    """Further options of the reports."""
    dataset: SerializeAsAny[DatasetBaseConfig] | None = None
    """The dataset that the workflow runs on."""
    rollouts: RayRollouts | None = None
    """Play the rollouts of `nat eval` in processes of a Ray cluster; `nat finetune` has `finetuning.rollouts`."""

    @property
    def report_dir(self) -> Path:
        """The folder of the reports, whichever key named it."""
        return self.output.dir if self.output is not None and self.output.dir is not None else self.output_dir


class EvalConfig(EvalModel):
    """Dataset, limits and evaluators."""

    general: EvalGeneralConfig = EvalGeneralConfig()
    """How the dataset is run."""
    evaluators: dict[str, SerializeAsAny[EvaluatorBaseConfig]] = {}
    """Evaluators of the answers, by name."""
