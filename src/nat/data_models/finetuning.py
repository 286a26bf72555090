"""The `finetuning` section of a YAML, the base configs of its components, and the records that they exchange."""

from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    model_validator,
)

from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import EvaluatorRef, TrainerAdapterRef, TrainerRef, TrajectoryBuilderRef
from nat.data_models.evaluate import RayRollouts
from nat.data_models.llm_usage import PriceConfig
from nat.data_models.tracker import TrackerConfig, TrackerName
from nat.files import UserPath, UserPathText
from nat.secrets import excerpt
from nat.wire.sampling import MAX_TEMPERATURE, MIN_TEMPERATURE
from nat.wire.training import JobStatus

TrainingStatusEnum = JobStatus
"""The guide's name."""


class TrainingJobRef(BaseModel):
    """Identifies a training job."""

    run_id: str
    backend: str
    metadata: dict[str, Any] | None = None

    @property
    def job_id(self) -> str | None:
        """The backend's id of the job; None if the metadata has none."""
        found = (self.metadata or {}).get("job_id")
        return None if found is None else str(found)

    def reported(
        self, status: JobStatus, *, progress: float | None = None, message: str | None = None, **facts: Any
    ) -> "TrainingJobStatus":
        """The job's status, with the facts beside the reference's metadata."""
        metadata = {**(self.metadata or {}), **facts}
        return TrainingJobStatus(
            run_id=self.run_id,
            backend=self.backend,
            status=status,
            progress=progress,
            message=message,
            metadata=metadata,
        )


class TrainingJobStatus(BaseModel):
    """Status of a job, as the backend reported it."""

    run_id: str
    backend: str
    status: JobStatus
    progress: float | None = Field(default=None, ge=0.0, le=100.0)
    """Percent completed."""
    message: str | None = None
    metadata: dict[str, Any] | None = None


class EpisodeItemRole(StrEnum):
    """Author of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    FUNCTION = "function"
    TOOL = "tool"
    ENVIRONMENT = "environment"
    OTHER = "other"


class EpisodeItem(BaseModel):
    """One message; an answer of the model has the log probabilities of its tokens."""

    role: EpisodeItemRole
    content: str
    logprobs: Any | None = None
    metadata: dict[str, Any] | None = None

    @property
    def sampled(self) -> bool:
        """False for an assistant message that the policy did not write: a few-shot example, an edited history."""
        return (self.metadata or {}).get("sampled") is not False

    @model_validator(mode="after")
    def _an_assistant_has_logprobs(self) -> Self:
        if self.role is EpisodeItemRole.ASSISTANT and self.logprobs is None:
            raise ValueError(
                f"the assistant message {excerpt(repr(self.content), 60)} has no logprobs; it cannot be trained on"
            )
        return self


class OpenAIMessage(BaseModel):
    """A chat message; further keys, such as `tool_calls` and `tool_call_id`, are kept."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str


class DPOItem(BaseModel):
    """A prompt with a better and a worse answer."""

    prompt: list[OpenAIMessage] | str
    chosen_response: str
    rejected_response: str


class Trajectory(BaseModel):
    """One run of the agent and its reward."""

    episode: list[EpisodeItem] | list[DPOItem]
    reward: float
    shaped_rewards: list[float] | None = None
    """The return of each of the `answers`, in their order; None if `reward` is the return of all of them."""
    metadata: dict[str, Any] | None = None

    @property
    def is_preference(self) -> bool:
        """True for a pair of a better and a worse answer, which is a comparison in itself."""
        return any(isinstance(item, DPOItem) for item in self.episode)

    @property
    def answers(self) -> list[EpisodeItem]:
        """The items to train on: assistant messages, except those whose metadata says `sampled: false`."""
        items = [item for item in self.episode if isinstance(item, EpisodeItem)]
        return [item for item in items if item.role is EpisodeItemRole.ASSISTANT and item.sampled]


class TrajectoryCollection(BaseModel):
    """All trajectories of an epoch; each inner list holds the generations of one example."""

    trajectories: list[list[Trajectory]]
    run_id: str
    job_id: str | None = Field(default=None, exclude=True)
    """Name of the update that trains on them, which a backend makes once, however often it is submitted; None lets the
    adapter choose one."""


class ServedModel(BaseModel):
    """A trained model that exists on its server only, and how a workflow uses it."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str
    """Name of exactly these weights, such as `my_run@20`."""
    base_url: str
    """URL of the server."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Pairs of dotted path and value that make the run's YAML use the model."""

    def __str__(self) -> str:
        return f"{self.name} at {self.base_url}"


class FinetuneModel(BaseModel):
    """Base of the section's models; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class GuardsConfig(FinetuneModel):
    """Bounds under `finetuning.guards`; the first three end the run, the others are for warnings and diagnoses."""

    epochs_without_signal: int = Field(default=3, ge=1)
    """End the run after this many epochs in a row in which no group had a difference in reward; a success if all
    rewards have risen to the highest one of the run, else an error. If it is not set, examples that look too hard get
    600 rollouts in up to ten epochs, which tell one success in 200 from none."""
    collapse_share: float = Field(default=0.5, ge=0, lt=1)
    """End the run when the mean reward, minus the worst reward seen, falls below this share of its value in the first
    epochs; 0 turns the check off. Failed rollouts count as the worst."""
    collapse_epochs: int = Field(default=3, ge=1)
    """Number of epochs in both averages, of the first and of the latest epochs."""
    max_equal_groups: float = Field(default=0.8, ge=0, le=1)
    """Warn when more than this share of the groups had no difference in reward, over the last five epochs."""
    max_truncated: float = Field(default=0.2, ge=0, le=1)
    """Warn when more than this share of the rollouts hit a token limit, and nine of ten of these score the lowest."""
    max_entropy_drop: float = Field(default=0.5, gt=0, le=1)
    """Warn when the entropy per token falls by more than this share within twenty epochs."""


class RewardFunctionConfig(FinetuneModel):
    """Which evaluator's score is the reward, and which answers of a rollout count for it."""

    name: EvaluatorRef
    """The evaluator, a key of `eval.evaluators`."""
    credit: Literal["outcome", "per_step", "return_to_go"] = "outcome"
    """The return of an answer: `outcome`, the score of its rollout; `per_step`, the rewards of its own step;
    `return_to_go`, these and all later rewards. Without `step_rewards` from the evaluator, the score is the reward of
    the last answer."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount of `return_to_go`: a reward is multiplied by it for each later answer in between."""
    failed_score: float | None = Field(default=None, allow_inf_nan=False)
    """The score of a rollout that fails or gets no score, in training and on held-out examples; null leaves it out of
    training, and the verdict allows for any score."""

    @model_validator(mode="after")
    def _gamma_needs_a_return(self) -> Self:
        if self.gamma != 1 and self.credit != "return_to_go":
            raise ValueError(f"gamma {self.gamma:g} has no effect with credit '{self.credit}'; it is for return_to_go")
        return self


class TrainerConfig(TypedBaseModel):
    """A trainer, named in the YAML under `trainers`."""

    reward: RewardFunctionConfig | None = None
    """Set from `finetuning.reward_function` when a run begins."""


class TrajectoryBuilderConfig(TypedBaseModel):
    """A trajectory builder, named in the YAML under `trajectory_builders`."""

    reward: RewardFunctionConfig | None = None
    """Set from `finetuning.reward_function` when a run begins."""

    gives: ClassVar[Literal["samples", "pairs", "texts"]] = "samples"
    """Rollouts whose answers must be drawn from the model's own distribution, pairs of answers from rollouts, or texts
    from elsewhere."""

    @property
    def plays(self) -> bool:
        """False if the trajectories come from elsewhere, so that their rewards do not tell how good the model is."""
        return self.gives != "texts"

    def check_files(self) -> None:
        """Raise DatasetError if a file that the builder reads cannot be used; nothing is started before this."""

    def rollouts_of(self, num_examples: int) -> int | None:
        """Rollouts of an epoch of a dataset with so many examples; None if the builder does not declare them."""
        return None


class TrainerAdapterConfig(TypedBaseModel):
    """A trainer adapter, named in the YAML under `trainer_adapters`."""

    reward: RewardFunctionConfig | None = None
    """Set from `finetuning.reward_function` when a run begins."""

    usual_trajectory_builder: ClassVar[str | None] = None
    """`_type` of the trajectory builder where the YAML has none; all its keys need defaults. None: it must have one."""
    usual_trainer: ClassVar[str | None] = None
    """`_type` of the trainer, likewise."""


TrainerConfigT = TypeVar("TrainerConfigT", bound=TrainerConfig)
TrajectoryBuilderConfigT = TypeVar("TrajectoryBuilderConfigT", bound=TrajectoryBuilderConfig)
TrainerAdapterConfigT = TypeVar("TrainerAdapterConfigT", bound=TrainerAdapterConfig)


class CurriculumLearningConfig(FinetuneModel):
    """Train on the easiest examples first, and add harder ones in later epochs."""

    enabled: bool = False
    """Turn the curriculum on."""
    initial_percentile: float = Field(default=0.3, gt=0.0, le=1.0)
    """Share of the groups, easiest first, that the first epochs train on."""
    increment_percentile: float = Field(default=0.2, gt=0.0, le=1.0)
    """Share that each expansion adds."""
    expansion_interval: int = Field(default=5, ge=1)
    """Epochs between expansions."""
    min_reward_diff: float = Field(default=0.1, ge=0.0)
    """Groups are left out if their best and worst reward differ by less."""
    sort_ascending: bool = False
    """Start with the groups of the lowest mean reward instead of the highest."""
    random_subsample: float | None = Field(default=None, gt=0.0, le=1.0)
    """Cap the groups of an epoch at this share, drawn at random; null for no cap."""


class EarlyStoppingConfig(FinetuneModel):
    """Stop when the validation reward no longer rises."""

    patience: int = Field(default=5, ge=1)
    """Validations without an improvement before the run stops."""
    min_delta: float = Field(default=0.0, ge=0.0)
    """Smallest rise that counts as an improvement."""


class BudgetConfig(FinetuneModel):
    """What calls of LLMs cost, and how much a run may spend."""

    prices: dict[str, PriceConfig] = Field(min_length=1)
    """Of LLMs, by their keys under `llms`; the others are free."""
    limit: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """End the run before an epoch that would exceed it, in the currency of the prices; null: only count."""


class SamplingInTraining(FinetuneModel):
    """Sampling of the target model in training rollouts; it overrides the agent's and the LLM's settings."""

    temperature: float = Field(default=1.0, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE)
    """Sampling temperature; top_p, top_k, penalties and all else that changes the distribution are off."""


class FinetuneRunConfig(BaseModel):
    """The options of the command line. Code may pass extra keys; a YAML may not."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    config_file: UserPath | BaseModel | None = None
    """The YAML, or a loaded configuration."""
    dataset: UserPathText | None = None
    """Replaces `eval.general.dataset.file_path`."""
    result_json_path: str = "$"
    """JSONPath of the answer in the workflow's output."""
    endpoint: str | None = None
    """URL of a workflow that `nat serve` serves; without it, the workflow runs in this process."""
    endpoint_timeout: int = Field(default=300, ge=1)
    """Time limit in seconds of a rollout at `endpoint`."""
    override: tuple[tuple[str, str], ...] = ()
    """Pairs of dotted path and YAML text."""
    validation_dataset: UserPathText | None = None
    """File with held-out rows, for validation before the first epoch, between epochs, and after the last."""
    validation_interval: int = Field(default=5, ge=1)
    """Epochs between validations."""
    validation_config_file: UserPathText | None = None
    """Another YAML for validation runs."""


class PhaseConfig(FinetuneModel):
    """A phase of a run; what it leaves out is taken from `finetuning`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
    """Its name in records and messages."""
    num_epochs: int = Field(ge=1)
    """Epochs of this phase."""
    trainer: TrainerRef | None = None
    """A key of `trainers`."""
    trajectory_builder: TrajectoryBuilderRef | None = None
    """A key of `trajectory_builders`."""
    trainer_adapter: TrainerAdapterRef | None = None
    """A key of `trainer_adapters`."""
    curriculum_learning: CurriculumLearningConfig | None = None
    """Train on the easiest examples of this phase first."""


class FinetuneConfig(FinetuneModel):
    """The `finetuning` section."""

    enabled: bool = False
    """Must be true for `nat finetune`."""
    trainer: TrainerRef | None = None
    """A key of `trainers`."""
    trajectory_builder: TrajectoryBuilderRef | None = None
    """A key of `trajectory_builders`."""
    trainer_adapter: TrainerAdapterRef | None = None
    """A key of `trainer_adapters`."""
    reward_function: RewardFunctionConfig | None = None
    """The evaluator whose score is the reward."""
    target_functions: list[str] = ["<workflow>"]
    """Train only LLM calls that these functions make, or preference pairs of candidates that they push. `<workflow>`,
    and the workflow's `_type` and `name`, mean all of them."""
    target_model: str | None = None
    """Train only calls of this LLM (its key under `llms`, or its model name), or of several, separated by commas; null:
    the adapter's."""
    sampling_in_training: SamplingInTraining | None = None
    """Sampling of the target model in training rollouts; null keeps the agent's settings."""
    curriculum_learning: CurriculumLearningConfig = CurriculumLearningConfig()
    """Train on the easiest examples first."""
    num_epochs: int = Field(default=1, ge=1)
    """Epochs of rollouts and an update each; how many examples one plays is the trajectory builder's to say."""
    phases: list[PhaseConfig] = []
    """Phases, which train the same model one after the other. Each has a `name` and `num_epochs`, and may have its own
    `trajectory_builder`, `trainer_adapter`, `trainer` and `curriculum_learning`."""
    max_staleness: int = Field(default=0, ge=0, le=8)
    """Updates by which the weights of a rollout may be older than those that its training begins with. The rollouts of
    so many epochs are played ahead while the backend trains; older ones are left out."""
    output_dir: UserPath = Path(".tmp/nat/finetuning")
    """Parent of the runs' folders."""
    run_configuration: FinetuneRunConfig | None = None
    """Options of the command line, which take precedence over this section."""
    seed: int = 0
    """Seed of sampling and subsampling."""
    max_failure_rate: float = Field(default=0.5, ge=0.0, le=1.0)
    """End the run when a larger share of an epoch's rollouts fails."""
    early_stopping: EarlyStoppingConfig | None = None
    """Stop on a plateau of the validation reward; null runs all epochs."""
    export_best: bool = False
    """At the end, also write the best weights as a model, to `best_model/` in the run's folder; of a run that failed,
    `nat runs export` does so."""
    budget: BudgetConfig | None = None
    """Prices of LLMs, and the most that a run may spend; null counts tokens alone."""
    guards: GuardsConfig = GuardsConfig()
    """Thresholds of checks that end a run that cannot learn, or warn."""
    rollouts: RayRollouts | None = None
    """Play rollouts in processes of a Ray cluster; null plays them in this process, or at an endpoint."""
    trackers: dict[TrackerName, SerializeAsAny[TrackerConfig]] = {}
    """Where the run is shown as well, by name."""

    @property
    def each_phase(self) -> "list[FinetuneConfig]":
        """The settings of each phase, which name that phase alone; without phases, these settings."""
        return [self.model_copy(update=_settings(phase)) for phase in self.phases] or [self]

    @property
    def phase(self) -> str | None:
        """The name of the phase that these are the settings of; None without phases, or with several."""
        return self.phases[0].name if len(self.phases) == 1 else None

    @property
    def total_epochs(self) -> int:
        """Epochs of all phases."""
        return sum(phase.num_epochs for phase in self.phases) or self.num_epochs

    @model_validator(mode="before")
    @classmethod
    def _has_no_other_roles(cls, section: Any) -> Any:
        """What `with_defaults` could not read as roles is left."""
        if isinstance(section, dict) and "trainer_adapters" in section:
            wanted = "expected an LLM for each role, such as {planner: llm}, and no trainer_adapter beside it"
            raise ValueError(f"trainer_adapters: {wanted}, got {excerpt(str(section['trainer_adapters']), 60)}")
        return section

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        names = [phase.name for phase in self.phases]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"phases: {names.count(twice)} have the name '{twice}'")
        if self.phases and self.num_epochs != 1:
            raise ValueError("num_epochs: has no effect beside phases, each of which has its own; remove it here")
        return self


def _settings(phase: PhaseConfig) -> dict[str, Any]:
    """What the phase replaces in `finetuning`."""
    own = {name: getattr(phase, name) for name in type(phase).model_fields if name != "name"}
    return {name: value for name, value in own.items() if value is not None} | {"phases": [phase]}
