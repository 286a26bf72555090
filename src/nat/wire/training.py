"""Requests of a trainer adapter to the embedded backend, and the answers.

Options have TRL's names where TRL has them. Jobs are idempotent: the client chooses the id, and the backend trains a
job once, however often it is sent.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from nat.wire.json import Several
from nat.wire.numbers import Amount, Logprob, PositiveAmount
from nat.wire.rewards import Reward
from nat.wire.sampling import MAX_TEMPERATURE, MIN_TEMPERATURE

Advantage = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "given"]
RatioLevel = Literal["token", "sequence"]
PolicyLoss = Literal["clip", "cispo"]
Compares = Literal["group", "batch", "nothing"]
Aggregation = Literal["token_mean", "seq_mean", "constant"]
GradientCheckpointing = Literal["auto", True, False]
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""Pattern of a name that a client chooses and that files get."""
LEFT_OUT = "left_out_"
"""How the metrics begin that name messages of a role which the chat template has left out."""
TRAINED_CALLS, TRAINED_TOKENS = "server_trained_calls", "server_trained_tokens"
CHECK_CALLS, CHECK_TOKENS = "server_check_calls", "server_check_tokens"
"""Metrics of an update on a Tinker server, which charges for them."""
_LARGEST = 2**31 - 1
"""Of a count: larger ones are slips, and do not fit into a float."""


class WireModel(BaseModel):
    """Unknown keys are errors on both sides of the wire."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Span(WireModel):
    """Tokens of a row to learn from: an answer that the policy sampled, or a text that somebody wrote."""

    start: int = Field(ge=1)
    """Index of its first token in the row; the first token of a row is predicted by none."""
    stop: int
    """Index after its last token."""
    logprobs: Several[Logprob] | None = None
    """The sampler's log probability of each token, at `temperature`; None for a text that the policy did not sample."""
    temperature: float = Field(default=1.0, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE)
    policy_version: str | None = None
    """The weights that sampled it, as the answer named them; None if it named none."""
    value: Reward | None = None
    """Its return, which is compared with the returns of other rollouts; None for the reward of its rollout."""
    teacher_logprobs: Several[Logprob | None] | None = None
    """The log probability that a teacher gives to each token at temperature 1, for the algorithm `distill`; a token to
    which it gave none teaches nothing."""

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if self.stop <= self.start:
            raise ValueError(f"a span from {self.start} to {self.stop} has no token")
        for name, values in (("logprobs", self.logprobs), ("teacher_logprobs", self.teacher_logprobs)):
            if values is not None and len(values) != self.size:
                raise ValueError(f"{len(values)} {name} for the {self.size} tokens of a span; each token needs one")
        return self

    @property
    def size(self) -> int:
        """Number of its tokens."""
        return self.stop - self.start


class TrainingRow(WireModel):
    """One token sequence, and the spans of it to learn from."""

    token_ids: Several[int] = Field(min_length=2)
    """All tokens of the sequence, prompts and answers, as the model saw them; length T."""
    spans: Several[Span]
    """One for each answer, in the order of the tokens."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        end = 0
        for span in self.spans:
            if span.start < end:
                raise ValueError(f"a span begins at token {span.start}, before the end of the one before it, {end}")
            end = span.stop
        if end > len(self.token_ids):
            raise ValueError(f"a span ends at token {end}; the row has {len(self.token_ids)}")
        return self

    @property
    def targets(self) -> list[int]:
        """Indices of the tokens to learn from."""
        return [at for span in self.spans for at in range(span.start, span.stop)]

    @property
    def num_sampled(self) -> int:
        """Number of tokens to learn from, which the policy sampled or somebody else wrote."""
        return sum(span.size for span in self.spans)


class TrainingRollout(WireModel):
    """One run of the agent: its rows share one reward, and together count as one rollout."""

    reward: Reward
    rows: Several[TrainingRow] = Field(min_length=1)
    truncated: bool = False
    """True if a completion stopped at its token limit."""
    advantage: Reward | None = None
    """The advantage of the rollout; needs `advantage: given` in the config."""
    weight: PositiveAmount = 1.0
    """Factor of its tokens in the loss; denominators ignore it."""

    @model_validator(mode="after")
    def _values_of_all_answers_or_of_none(self) -> Self:
        values = [span.value for row in self.rows for span in row.spans]
        if None in values and (given := len(values) - values.count(None)):
            raise ValueError(f"{given} of {len(values)} spans have a value; all spans of a rollout need one, or none")
        return self

    @property
    def returns(self) -> list[float]:
        """The returns of its answers, row by row; without any, its reward."""
        return [span.value for row in self.rows for span in row.spans if span.value is not None] or [self.reward]


class TrainingGroup(WireModel):
    """The rollouts of one example; advantages compare them with each other."""

    id: str
    rollouts: Several[TrainingRollout] = Field(min_length=1)


def rows_of(groups: Iterable[TrainingGroup]) -> list[TrainingRow]:
    """The rows of all rollouts, in their order."""
    return [row for group in groups for rollout in group.rollouts for row in rollout.rows]


class TrainingConfig(WireModel):
    """The algorithm and the optimizer of an update.

    `algorithm` has defaults for some of the settings; a setting that you name wins. Defaults below are those of
    `lite_ppo`.
    """

    algorithm: str = "lite_ppo"
    """Name of a built-in algorithm or of one from a plug-in; it sets the defaults of the other settings."""
    options: dict[str, JsonValue] = {}
    """The algorithm's own options; of the built-in algorithms `art`, `distill`, `dpo` and `kto` have some."""
    learning_rate: PositiveAmount | None = None
    """Peak learning rate of AdamW; null chooses it by the model's width: 1e-6 * (4096 / width)^(5/3), with LoRA
    0.16 / width."""
    warmup_steps: int = Field(default=5, ge=0, le=_LARGEST)
    """Optimizer steps over which the learning rate rises linearly from zero."""
    decay_steps: int | None = Field(default=None, ge=1, le=_LARGEST)
    """Optimizer steps over which the learning rate falls linearly to a tenth, where it stays; null keeps it constant.
    They are counted from the first step; an epoch has `num_iterations` x `steps_per_batch`."""
    advantage: Advantage = "dr_grpo"
    """How rewards become advantages: standardised in their group (`grpo`), centred in it (`dr_grpo`), compared with
    the other rollouts of it (`rloo`) or standardised over the batch (`reinforce_pp`). With `given` each rollout has
    an advantage of its own."""
    normalize_advantages: bool = True
    """Divide the advantages by their standard deviation over the whole batch."""
    importance_sampling_level: RatioLevel = "token"
    """One probability ratio per token (PPO, GRPO), or one per row of a rollout (GSPO)."""
    old_logprobs: Literal["learner", "sampler"] = "learner"
    """Which log probabilities the ratio compares with: `learner` takes the learner's at the start of the update, and
    `importance_sampling_cap` corrects for the sampler; `sampler` takes those that the sampler reported."""
    policy_loss: PolicyLoss = "clip"
    """PPO's clipped objective, or a capped weight without a gradient on log π (CISPO)."""
    aggregation: Aggregation = "token_mean"
    """Mean over all tokens, mean over rollouts of their token means, or sum over tokens divided by (rollouts x
    `max_completion_length`)."""
    max_completion_length: int = Field(default=1024, ge=1, le=_LARGEST)
    """Tokens by which the `constant` aggregation divides."""
    epsilon: Amount = 0.2
    """Lower clip range of the ratio."""
    epsilon_high: Amount = 0.28
    """Upper clip range of the ratio; `cispo` caps the weight at 1 + epsilon_high."""
    beta: Amount = 0.0
    """Weight of the KL divergence to the reference model: the one that training, or its phase, started from."""
    kl_penalty_coef: Amount = 0.0
    """Weight of a KL penalty in the advantages: tokens lose advantage where the policy is further from the reference
    model than on average in the optimizer step, and gain it where it is nearer."""
    kl_penalty_source: Literal["learner", "sampler"] = "learner"
    """What that penalty takes for the policy: the learner at the start of the update, or the sampler."""
    importance_sampling_cap: PositiveAmount | None = 2.0
    """Truncated importance sampling: cap on π_old/μ per token, where μ is the sampler; null for no correction."""
    num_iterations: int = Field(default=1, ge=1, le=100)
    """Passes over the batch, each with its own optimizer steps."""
    steps_per_batch: int | None = Field(default=None, ge=1, le=_LARGEST)
    """Optimizer steps per pass; the groups are shuffled and split evenly. Null takes a step for each 32 rollouts, at
    most 16 steps."""
    tokens_per_step: int | None = Field(default=None, ge=1, le=_LARGEST)
    """Split the shuffled rollouts into optimizer steps of at most this many tokens, instead of into `steps_per_batch`
    steps; the prompt that the rollouts of a group share counts once."""
    micro_batch_tokens: int = Field(default=4096, ge=1, le=_LARGEST)
    """The most tokens of one forward and backward pass; affects memory, not the gradient."""
    gradient_checkpointing: GradientCheckpointing = "auto"
    """Compute the activations of decoder layers again in the backward pass instead of keeping them; affects memory and
    time, not the gradient. `auto` does so for as many layers as it takes to fit the activations of a micro-batch into
    two fifths of the free memory."""
    max_kl: PositiveAmount | None = 0.01
    """The most KL divergence per token by which an update may move the policy against its advantages: good tokens that
    become less likely, bad ones more (`unasked_kl`). Of an update that goes further, a part of its way is kept. Null
    allows any. It is measured on tokens that a model sampled, so texts from a file have no such bound."""
    max_grad_norm: PositiveAmount = 1.0
    """Maximum global norm of the gradient; a larger one is scaled down."""
    weight_decay: Amount = 0.0
    """AdamW's decoupled weight decay."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay rate of AdamW's mean of the gradient."""
    adam_beta2: float = Field(default=0.99, ge=0, lt=1)
    """Decay rate of AdamW's mean of the squared gradient."""
    adam_epsilon: PositiveAmount = 1e-8
    """Added to AdamW's denominator."""
    mask_truncated_completions: bool = False
    """Exclude truncated rollouts from the loss and its denominator."""
    max_logprob_difference: PositiveAmount = 0.05
    """Fail the job if sampler and learner differ by more than this on the same tokens (mean |Δ log p|). In bfloat16 it
    is at least three times what rounding alone makes of these weights."""
    max_served_difference: PositiveAmount | None = None
    """Fail the job if sampler and learner differ by more than this after the update, when both use the new weights;
    raised in bfloat16 like `max_logprob_difference`, which null takes."""
    seed: int = 0
    """Seed of the order in which groups are split into optimizer steps; each update and pass has another order."""

    @model_validator(mode="after")
    def _one_way_to_split(self) -> Self:
        if self.tokens_per_step is not None and (self.steps_per_batch or 1) > 1:
            seen = f"tokens_per_step {self.tokens_per_step} and steps_per_batch {self.steps_per_batch}"
            raise ValueError(f"{seen} are two ways to split a batch into optimizer steps; set one of them")
        return self


class ResolvedTraining(WireModel):
    """The settings that an update uses: the user's, and for the rest the algorithm's."""

    algorithm: str
    paper: str
    compares: Compares = "group"
    """What the reward of a rollout is compared with: the others of its group, of the whole batch, or nothing."""
    only_samples: bool = True
    """True if it trains only what the model has sampled, whose log probabilities it needs."""
    needs_teacher: bool = False
    """True if it learns from the log probabilities of a teacher."""
    settings: dict[str, JsonValue]
    """Every setting of `TrainingConfig` that the algorithm uses; a factor of the algorithm's own has its name."""


class TrainerProgram(WireModel):
    """A program of the user's, which takes the place of the optimizer steps."""

    arguments: list[str] = Field(min_length=1)
    """The program and its arguments."""
    timeout: float = Field(gt=0, le=_LARGEST)
    """Seconds after which it is ended."""


class TrainingJob(WireModel):
    """One request for an update."""

    id: str = Field(pattern=f"^{FILE_NAME}$")
    groups: Several[TrainingGroup] = Field(min_length=1)
    config: TrainingConfig = TrainingConfig()
    stale: bool = False
    """Whether earlier weights may have sampled some tokens; these are not compared with the current weights."""
    program: TrainerProgram | None = None
    """What trains; None for the learner. Only a backend that the harness started runs programs."""


class JobStatus(StrEnum):
    """Status of a job; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELED)


class SavedJobs(WireModel):
    """Up to which job weights are on disk."""

    newest: str | None
    """The last job of the newest checkpoint; None for none."""
    fallback: str | None
    """The last job of the checkpoint that a restart takes if the newest is damaged; None for the starting model."""


class JobFailure(WireModel):
    """Why a job failed, for the user."""

    type: Literal[
        "gradient_zero",
        "gradient_not_finite",
        "weights_unchanged",
        "logprob_mismatch",
        "invalid_batch",
        "program_failed",
        "internal",
    ]
    message: str
    hint: str


class JobState(WireModel):
    """State of a job."""

    id: str
    status: JobStatus
    progress: float = Field(default=0.0, ge=0, le=100)
    """Percent of the job's micro-batches that are done."""
    policy_version: str | None = None
    """`name@step` of the weights after this job; None until it is completed."""
    metrics: dict[str, float] = {}
    steps: list[dict[str, float]] = []
    """Metrics of each optimizer step, before `max_kl` shortened the update."""
    training: ResolvedTraining | None = None
    """The settings that were used; None until the job is completed, and for jobs of other protocols."""
    failure: JobFailure | None = None


class ExportRequest(WireModel):
    """Request to write the current weights as a Hugging Face directory."""

    name: str = Field(pattern=f"^{FILE_NAME}$")
    """Name of a folder in `exports/` of the backend's output folder, without path separators."""


class ExportedModel(WireModel):
    """Location of an exported model."""

    path: str
    """Absolute path of the model's directory, merged if adapters were trained."""
    adapter_path: str | None = None
    """Absolute path of the LoRA adapter alone, None if all weights were trained."""
    policy_version: str


class SavedCheckpoint(WireModel):
    """The checkpoint that is kept as the best so far."""

    path: str
    """Absolute path of its folder, which loads as a model."""
    policy_version: str


MAX_CONVERSATIONS = 64
"""Conversations in a request."""


class Conversation(WireModel):
    """Chat messages, some of which to learn from."""

    messages: Several[dict[str, Any]] = Field(min_length=1)
    """In the form of the chat API."""
    tools: Several[dict[str, Any]] | None = None
    """What the model could call, in the form of the chat API."""
    answers: Several[int] = Field(min_length=1)
    """Indices of the messages of the assistant to learn from, in rising order."""


class TokenizeRequest(WireModel):
    """Conversations as text, which the backend turns into the rows that it trains on."""

    conversations: Several[Conversation] = Field(min_length=1, max_length=MAX_CONVERSATIONS)


class TokenizedConversation(WireModel):
    """The rows of a conversation, or why there are none."""

    rows: list[TrainingRow] = []
    """As few as the chat template allows; their spans have no log probabilities."""
    problem: str | None = None


class TokenizeAnswer(WireModel):
    """The conversations of a request, in their order."""

    conversations: list[TokenizedConversation]
