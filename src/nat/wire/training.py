"""What a trainer adapter sends to the embedded backend, and what the backend answers.

Names of options follow TRL where TRL has one. A job is idempotent: its id is chosen by the client, and a
job that is sent twice is trained once.
"""

from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class WireModel(BaseModel):
    """Unknown keys are errors on both sides of the wire."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class TrainingRow(WireModel):
    """One token sequence; the policy sampled exactly those tokens that carry a logprob."""

    token_ids: list[int] = Field(min_length=2)
    """All tokens of the sequence, prompt and completions, as the model saw them; length T."""
    logprobs: list[float | None]
    """The sampler's log probability of each token, None where the token was not sampled; length T."""

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if len(self.logprobs) != len(self.token_ids):
            seen = f"{len(self.logprobs)} logprobs for {len(self.token_ids)} tokens"
            raise ValueError(f"{seen}; each token needs one (or null)")
        if self.logprobs[0] is not None:
            raise ValueError("the first token carries a logprob, but nothing comes before it to predict it from")
        return self

    @property
    def num_sampled(self) -> int:
        return sum(logprob is not None for logprob in self.logprobs)


class TrainingRollout(WireModel):
    """One run of the agent: its rows share one reward and weigh together as one rollout."""

    reward: float = Field(allow_inf_nan=False)
    rows: list[TrainingRow] = Field(min_length=1)
    truncated: bool = False
    """True if some completion stopped at its token limit and not by itself."""


class TrainingGroup(WireModel):
    """The rollouts of one example; advantages compare them with each other."""

    id: str
    rollouts: list[TrainingRollout] = Field(min_length=1)


class TrainingConfig(WireModel):
    """The algorithm of an update. Advantage, ratio, clipping, aggregation and correction are orthogonal."""

    learning_rate: float = Field(default=1e-5, gt=0)
    """Peak learning rate of AdamW."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises linearly from zero; constant after that."""
    advantage: Literal["grpo", "dr_grpo", "rloo", "reinforce_pp"] = "dr_grpo"
    """Rewards of a group become advantages: standardised, centred, leave-one-out, or batch-normalised."""
    normalize_advantages: bool = True
    """Divide the advantages by their standard deviation over the whole batch."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """One probability ratio per token (PPO, GRPO), or one per rollout branch (GSPO)."""
    policy_loss: Literal["clip", "cispo"] = "clip"
    """PPO's clipped objective, or CISPO's clipped, detached weight on log π."""
    aggregation: Literal["token_mean", "seq_mean", "constant"] = "token_mean"
    """Mean over trained tokens, mean over rollouts of token means, or sum over (rollouts x max_completion_length)."""
    max_completion_length: int = Field(default=1024, ge=1)
    """L_max of the `constant` aggregation, in tokens."""
    epsilon: float = Field(default=0.2, gt=0)
    """Lower clip range of the ratio."""
    epsilon_high: float = Field(default=0.28, gt=0)
    """Upper clip range of the ratio; for `cispo` the weight is capped at 1 + epsilon_high."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL divergence to the reference model (the weights that the backend started from)."""
    importance_sampling_cap: float | None = Field(default=2.0, gt=0)
    """Truncated importance sampling: cap on π_old/μ per token, None for no correction."""
    num_iterations: int = Field(default=1, ge=1)
    """Passes over the batch, each with its own optimizer steps."""
    steps_per_batch: int = Field(default=1, ge=1)
    """Optimizer steps per pass; groups are shuffled and dealt out evenly."""
    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Tokens in one forward and backward pass; changes memory, never the gradient."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradient clipping by global norm."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's decoupled weight decay."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of AdamW's mean of the gradient."""
    adam_beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay of AdamW's mean of the squared gradient."""
    adam_epsilon: float = Field(default=1e-8, gt=0)
    """Added to AdamW's denominator."""
    mask_truncated_completions: bool = False
    """Leave truncated rollouts out of the loss and of its denominator."""
    max_logprob_difference: float = Field(default=0.05, gt=0)
    """Alarm level: mean |Δ log p| between sampler and learner on the same tokens above which the job fails."""
    seed: int = 0
    """Seed of the order in which groups are dealt out."""


class TrainingJob(WireModel):
    """One request for an update."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    groups: list[TrainingGroup] = Field(min_length=1)
    config: TrainingConfig = TrainingConfig()


class JobStatus(StrEnum):
    """Life of a job; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELED)


class JobFailure(WireModel):
    """Why a job failed, in words for the user."""

    type: Literal[
        "gradient_zero", "gradient_not_finite", "weights_unchanged", "logprob_mismatch", "invalid_batch", "internal"
    ]
    message: str
    hint: str


class JobState(WireModel):
    """What the backend knows of a job."""

    id: str
    status: JobStatus
    progress: float = Field(default=0.0, ge=0, le=100)
    """Percent of the job's micro-batches that are done."""
    policy_version: str | None = None
    """`name@step` that the sampler serves after this job; None until it is completed."""
    metrics: dict[str, float] = {}
    failure: JobFailure | None = None


class ExportRequest(WireModel):
    """Ask for the current weights as a Hugging Face directory."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """A folder inside the backend's output folder; no path separators."""


class ExportedModel(WireModel):
    """Where the backend wrote the trained model."""

    path: str
    """Absolute path of the model's directory, merged if adapters were trained."""
    adapter_path: str | None = None
    """Absolute path of the LoRA adapter alone, None if all weights were trained."""
    policy_version: str
