"""The bodies of OpenPipe ART's HTTP protocols, as clients of 0.5.17 and 0.5.23 send and read them.

Reading is lenient, because each version sends other fields: unknown keys are ignored, and `null` counts as absent.
Dump with `by_alias=True, exclude_none=True`. Those of the second protocol, which the native remote client speaks from
0.5.18 on, are in `nat.art.server.serverless`.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from nat.wire.json import Several
from nat.wire.numbers import Amount, Logprob, PositiveAmount
from nat.wire.rewards import Reward

JOB_ID_HEADER = "X-Job-Id"
"""The header in which our server gives the id of a training call's job."""
SERVING_HEADER = "X-Nat-Serving"
"""The header in which our server says, as `Serving` in ASCII, how it serves a model that was prepared."""
TOKEN_ID = "token_id:"
"""The prefix of a sampled token that is given by its id."""
STEPS, NEW_STEPS = "num_gradient_steps", "data/step_num_gradient_steps"
"""The number of gradient steps in each line of a training call, under both of its names."""
TRAINED_GROUPS, TRAINED_TOKENS = "data/step_num_groups_trainable", "data/step_trainer_tokens"
"""Counts of a training call's batch, which each of its lines repeats."""


class ArtRecord(BaseModel):
    """Unknown keys are ignored; a null stands for the default."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


Passed = Annotated[dict[str, Any], AfterValidator(lambda args: {k: v for k, v in args.items() if v is not None})]
"""Arguments that are passed on to the server as they are."""


class InitArgs(ArtRecord):
    """Options of loading the model; further keys are passed on to the server."""

    model_config = ConfigDict(extra="allow")

    max_seq_length: int | None = Field(default=None, ge=1)
    """Longest prompt plus answer in tokens."""


class PeftArgs(ArtRecord):
    """The trained adapter."""

    model_config = ConfigDict(extra="allow")

    r: int | None = Field(default=None, ge=1)
    """Rank."""
    lora_alpha: int | None = Field(default=None, ge=1, le=2**20)
    """Scale."""


class OptimizerArgs(ArtRecord):
    """What can be set of AdamW besides its learning rate."""

    adam_beta1: float | None = Field(default=None, ge=0, lt=1)
    """Decay of AdamW's first moment."""
    adam_beta2: float | None = Field(default=None, ge=0, lt=1)
    """Decay of AdamW's second moment."""
    weight_decay: Amount | None = None
    """Weight decay of AdamW."""
    max_grad_norm: PositiveAmount | None = None
    """Gradient clipping by global norm."""


class TrainerArgs(OptimizerArgs):
    """The optimizer; further keys are passed on to the server."""

    model_config = ConfigDict(extra="allow")

    learning_rate: PositiveAmount | None = None
    """Learning rate of AdamW, for training requests without one."""
    beta: Amount | None = None
    """Weight of the KL term, for training requests without one."""


class InternalModelConfig(ArtRecord):
    """The settings that the client requests of the server for this model."""

    init_args: InitArgs | None = None
    engine_args: Passed | None = None
    peft_args: PeftArgs | None = None
    trainer_args: TrainerArgs | None = None
    torchtune_args: Passed | None = None

    @property
    def max_seq_length(self) -> int | None:
        """Most tokens of a conversation that is trained on; None if the client set no limit."""
        return None if self.init_args is None else self.init_args.max_seq_length


class ArtModel(ArtRecord):
    """A model as a client registers it, bare or inside another body."""

    name: str
    project: str
    entity: str | None = None
    trainable: bool = True
    base_model: str | None = None
    internal_config: InternalModelConfig = Field(default=InternalModelConfig(), alias="_internal_config")


class ArtTokenLogprob(ArtRecord):
    """A sampled token, as `token_id:<id>` or its text, with the log probability that the sampler gave it."""

    token: Annotated[str, BeforeValidator(lambda token: f"{TOKEN_ID}{token}" if isinstance(token, int) else token)] = (
        Field(validation_alias=AliasChoices("token_id", "token"))
    )
    logprob: Logprob
    bytes: Several[int] | None = None
    top_logprobs: Several[dict[str, Any]] = []
    """Alternatives, never trained on; servers up to 0.5.17 read a choice without the key as a message."""


class ArtLogprobs(ArtRecord):
    """One entry per sampled token."""

    content: Several[ArtTokenLogprob] | None = None
    token_logprobs: Several[Logprob] = []
    """In text completions, those of the choice's `token_ids`."""


class ArtChoice(ArtRecord):
    """An answer of the model as the OpenAI API gave it; its tokens are trained on."""

    message: dict[str, Any] = {"role": "assistant", "content": ""}
    finish_reason: str = "stop"
    index: int = 0
    logprobs: ArtLogprobs | None = None
    prompt_token_ids: Several[int] = []
    """The prompt that was answered, if the server sent it; else the messages before it count."""
    token_ids: Several[int] = []


def _kind(item: object) -> str:
    """A choice contains a message; a message has a role."""
    if isinstance(item, ArtChoice):
        return "choice"
    choice = isinstance(item, dict) and "message" in item and "role" not in item
    return "choice" if choice else "message"


MessageOrChoice = Annotated[
    Annotated[ArtChoice, Tag("choice")] | Annotated[dict[str, Any], Tag("message")], Discriminator(_kind)
]
"""An answer of the model, or any other message of a conversation, which is context only."""


class ArtHistory(ArtRecord):
    """One conversation."""

    messages_and_choices: Several[MessageOrChoice] = []
    tools: Several[dict[str, Any]] | None = None


class ArtGeneration(ArtRecord):
    """One sampling of the Responses API; a response has several if the server runs tools."""

    prompt_token_ids: Several[int] = []
    output_tokens: Several[ArtTokenLogprob] = []


class ArtCapturedRequest(ArtRecord):
    """What counts of a captured request."""

    model: str = ""
    messages: Several[dict[str, Any]] = []
    tools: Several[dict[str, Any]] | None = None


class ArtCapturedResponse(ArtRecord):
    """What counts of a captured response, joined if it was a stream: each API has fields of its own for the tokens."""

    model: str = ""
    choices: Several[ArtChoice] = []
    prompt_token_ids: Several[int] = []
    token_ids: Several[int] = []
    logprobs: Several[Logprob] = []
    token_generations: Several[ArtGeneration] = []


class ArtExchange(ArtRecord):
    """A call that the client captured."""

    request: ArtCapturedRequest
    response: ArtCapturedResponse

    @property
    def model(self) -> str:
        return self.request.model or self.response.model


class ArtExchanges(ArtRecord):
    """The captured calls of a rollout, by the API that they used."""

    chat_completions: Several[ArtExchange] = []
    completions: Several[ArtExchange] = []
    responses: Several[ArtExchange] = []
    messages: Several[ArtExchange] = []

    def __bool__(self) -> bool:
        return any(dict(self).values())


class ArtTrajectory(ArtHistory):
    """One rollout: its conversations share one reward."""

    reward: Reward = 0.0
    additional_histories: Several[ArtHistory] = []
    exchanges: ArtExchanges = ArtExchanges()
    """All calls of the rollout, to whichever model, instead of messages: `art.trajectory` (ART from 0.5.20 on)."""
    metadata: dict[str, Any] = {}

    @property
    def histories(self) -> list[ArtHistory]:
        """All conversations, the main one first."""
        return [self, *self.additional_histories]


class ArtTrajectoryGroup(ArtRecord):
    """Rollouts that are compared with each other."""

    trajectories: Several[ArtTrajectory] = []
    exceptions: Several[dict[str, Any]] = []
    """Rollouts that raised."""


class ArtTrainConfig(ArtRecord):
    """The `config` of a training request; the server logs the keys that it does not know."""

    model_config = ConfigDict(extra="allow")

    learning_rate: PositiveAmount = 5e-6
    """Learning rate of AdamW."""
    beta: Amount = 0.0
    """Weight of a KL term in the loss (ART up to 0.5.16)."""
    kl_penalty_coef: Amount = 0.0
    """Weight of a KL penalty in the advantages (ART from 0.5.16 on)."""
    grad_accumulation_sequences: int | None = Field(default=None, ge=1, le=2**10)
    """Packed sequences in one optimizer step (ART from 0.5.18 on)."""


class ArtDevTrainConfig(ArtRecord):
    """The `dev_config` of a training request, `experimental_config` in the serverless protocol.

    The server logs the keys that it does not know.
    """

    model_config = ConfigDict(extra="allow")

    advantage_balance: float = Field(default=0.0, ge=-1, le=1)
    """Above 0, shrink negative advantages by this share; below 0, positive ones."""
    epsilon: Amount | None = None
    """Lower clip range."""
    epsilon_high: Amount | None = None
    """Upper clip range."""
    importance_sampling_level: Literal["token", "sequence", "average", "geometric_average"] = "token"
    """One ratio per token or per sequence, or the two averaged."""
    kimi_k2_tau: Amount | None = None
    """Subtracts tau · log(π/π_old) from each token's advantage."""
    kl_penalty_coef: Amount | None = None
    """Weight of a KL penalty in the advantages."""
    kl_penalty_source: Literal["current_learner", "sample"] = "current_learner"
    """Whose log probabilities the KL penalty compares with the reference's: the learner's at the start of the update,
    or those that the answers were sampled with (ART from 0.5.23 on)."""
    mask_prob_ratio: bool = False
    """Drop the gradient of tokens whose ratio is outside the clip range."""
    max_negative_advantage_importance_sampling_weight: PositiveAmount | None = None
    """Cap of the ratio where the advantage is negative."""
    num_trajectories_learning_rate_multiplier_power: float = Field(default=0.0, ge=-10, le=10)
    """Multiply the learning rate by the number of trajectories to this power."""
    ppo: bool | None = None
    """PPO's clipped objective; else a clipped, detached weight on log π (CISPO)."""
    precalculate_logprobs: bool = False
    """Compute π_old with the learner at the start of the update instead of using the sampler's."""
    scale_rewards: bool = True
    """Divide the advantages of a group by the standard deviation of its rewards."""
    truncated_importance_sampling: PositiveAmount | None = None
    """Cap of π_old/μ per token; with `precalculate_logprobs`."""
    packed_sequence_length: int | None = Field(default=None, ge=1, le=2**20)
    """Tokens of a packed sequence."""


class ArtTrainRequest(ArtRecord):
    """POST /_train_model."""

    model: ArtModel
    trajectory_groups: Several[ArtTrajectoryGroup]
    config: ArtTrainConfig
    dev_config: ArtDevTrainConfig
    verbose: bool = False


class Serving(BaseModel):
    """What a client cannot know of a server that has one base model, whatever was requested."""

    base_model: str
    """The name of the served one."""
    notes: list[str] = []
    """What was requested and has no effect, in whole sentences."""


class ArtServerConfig(ArtRecord):
    """Options of vLLM's OpenAI server; only what this server must answer for is read."""

    server_args: dict[str, Any] = {}


class ArtPrepareRequest(ArtRecord):
    """POST /_prepare_backend_for_training."""

    model: ArtModel
    config: ArtServerConfig = ArtServerConfig()


class ArtDeleteRequest(ArtRecord):
    """POST /_delete_checkpoint_files."""

    model: ArtModel
    steps_to_keep: Several[int]
