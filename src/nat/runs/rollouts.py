"""The rollouts of a run: their records, why some are not trained on, and counts over an epoch. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nat.data_models import rollout_failure
from nat.data_models.llm_usage import LLMUsage, added
from nat.data_models.rollout_failure import FailureCount, FirstFailure, counted
from nat.runs.records import Phase, PurposeUsage, RunRecord, after_epoch, epoch_number
from nat.wire.training import Span, TrainingRow


class LeftOutCause(StrEnum):
    """Why a rollout was not trained on; the value is the text that users see."""

    FAILED = rollout_failure.RAISED
    TIMED_OUT = rollout_failure.TIMED_OUT
    CALLS_FAILED = rollout_failure.CALLS_FAILED
    NO_SCORE = rollout_failure.NO_SCORE
    SCORED_TOO_LATE = rollout_failure.SCORED_TOO_LATE
    NO_TARGET_FUNCTION = "no LLM call came from a target function"
    NO_TARGET_MODEL = "no LLM call went to the target model"
    NO_LOGPROBS = "the server sent no logprobs"
    UNTRAINABLE_SAMPLING = "its answers were not drawn from the model's own distribution"
    TOO_STALE = "its answers came from weights of more than max_staleness updates ago"
    NO_PAIR = "its candidates make no preference pair"
    NO_REWARD_DIFFERENCE = "its group has no difference in reward"
    OUTSIDE_CURRICULUM = "the curriculum left its group out"

    @property
    def failure(self) -> bool:
        """True if the workflow or the evaluator failed, so that `max_failure_rate` counts the rollout."""
        return self in rollout_failure.FAILURES

    @property
    def by_choice(self) -> bool:
        """True if the rollout could have been trained on, and the trainer chose others."""
        return self in (LeftOutCause.NO_REWARD_DIFFERENCE, LeftOutCause.OUTSIDE_CURRICULUM)


class Beginning(StrEnum):
    """Why a call began a conversation instead of continuing one; the value is the text for the user."""

    FIRST = "first"
    """The call was the first one of the rollout."""
    RETRY = "retry"
    """An earlier call had the same request."""
    FORK = "fork"
    """The call continues after an earlier answer, but differs from the conversation of that answer."""
    REWRITTEN = "rewritten"
    """The call repeats earlier answers, but the answers or the messages before them were changed."""
    RETOKENIZED = "other tokens"
    """The messages continue a conversation, but the prompt's tokens differ from those seen and sampled before."""
    OTHER_SYSTEM_PROMPT = "other system prompt"
    """The call shares no message with earlier calls, not even the system prompt: usually a sub-agent."""
    OTHER_PROMPT = "other prompt"
    """The call differs before any answer; a summarised history looks like this too."""
    OTHER_MODEL = "other model"
    """The call was the first one to another model."""

    @property
    def breaks_a_prefix(self) -> bool:
        """True if the call continues with a history whose tokens differ from those of earlier calls."""
        return self in (Beginning.RETOKENIZED, Beginning.REWRITTEN)


class Answer(BaseModel):
    """An answer that was sampled in this rollout, and where its tokens are."""

    model_config = ConfigDict(extra="forbid")

    message: int = Field(ge=0)
    """Its place among the messages of the conversation."""
    row: int | None = Field(default=None, ge=0)
    """Index of its row; None if its tokens are not recorded, or it has none."""
    span: int | None = Field(default=None, ge=0)
    """Index of its span in the row."""


class Conversation(BaseModel):
    """One conversation; its number is its index in the list."""

    model_config = ConfigDict(extra="forbid")

    began: Beginning
    parent: int | None = None
    """Number of the conversation that it shares a beginning with, if any."""
    shared: int = Field(default=0, ge=0)
    """Number of leading messages that it has in common with its parent."""
    messages: list[dict[str, Any]] = []
    """In OpenAI's shape."""
    answers: list[Answer] = []
    """The answers that were sampled in this rollout, in order; it may have other messages of the assistant."""
    tools: list[dict[str, Any]] = []
    """The tools that its last request offered."""


class RolloutRecord(BaseModel):
    """One run of the agent on one example: what was trained on, or why it was left out."""

    model_config = RunRecord.model_config

    example_id: str
    generation: int = Field(ge=0)
    """Number of the rollout among those of the example in this epoch."""
    question: str = ""
    """The workflow's input; anything but a text as JSON."""
    expected: str = ""
    """The answer that the dataset has for it, likewise."""
    reward: float | None = None
    """None if the rollout failed or could not be scored; never a substitute number."""
    left_out: LeftOutCause | None = None
    """None if it was trained on (or, in a validation, scored)."""
    error: str | None = None
    """Type and message of the error, if there was one."""
    traceback: str | None = Field(default=None, exclude=True, repr=False)
    """Of the error; the journal keeps one per kind of failure, not one per rollout."""
    conversations: list[Conversation] = []
    """The conversations, each with its messages in OpenAI's shape, and why it began."""
    output: str | None = None
    """The workflow's result, as text."""
    reasoning: Any = None
    """The evaluator's explanation of the score; any JSON."""
    scores_beside: dict[str, float] = {}
    """Scores by evaluators that are not the reward, by their names; those that gave it none are absent."""
    relative: bool = False
    """True if the score compares the generations of an example."""
    num_calls: int | None = Field(default=0, ge=0)
    """LLM calls, those of other functions and models included; None if the builder keeps no records of its rollouts."""
    num_failed_calls: int = Field(default=0, ge=0)
    """Calls without an answer; each retry of a client counts."""
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    broken_prefixes: int = Field(default=0, ge=0)
    """Calls whose prompt did not continue the tokens before it, so that a new row began."""
    broken_by: dict[str, int] = {}
    """The number of such calls by cause."""
    truncated: bool = False
    """True if a completion stopped at its token limit; only of the target, if one is set and was called."""
    lost_calls: dict[str, int] = {}
    """Answers of the target with a tool call that could not be used, by cause."""
    rows: list[TrainingRow] = []
    """The exact token ids and sampler logprobs; empty if the server does not send them."""
    functions: dict[str, int] = {}
    """LLM calls by the function that made them."""
    models: dict[str, int] = {}
    """LLM calls by model, under the names that `target_model` is compared with."""
    untrainable_calls: dict[str, dict[str, int]] = {}
    """Calls to the target that were left out because of sampling options: by function, then by option."""
    untempered_calls: dict[str, dict[str, int]] = {}
    """Calls whose temperature is not that of their log probabilities: by function, then by option."""
    policy_versions: dict[str, int] = {}
    """Answers of the target by policy version; empty if the server does not send it."""
    usage: dict[str, LLMUsage] = {}
    """What its LLM calls took, by LLM."""
    judge_usage: dict[str, LLMUsage] = {}
    """Its share of what the evaluators' own calls took."""
    seed: int | None = None
    seconds: float = Field(default=0.0, ge=0)

    @property
    def failed(self) -> bool:
        """True if the workflow or the evaluator failed, and `failed_score` does not count it in training."""
        return self.left_out is not None and self.left_out.failure

    @property
    def problem(self) -> str | None:
        """Why it failed or could not be trained on; None also if the trainer chose others."""
        if self.left_out is not None and not self.left_out.by_choice:
            return self.left_out
        return None if self.error is None else rollout_failure.COUNTED

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Of all conversations, one after the other."""
        return [message for conversation in self.conversations for message in conversation.messages]

    def span_of(self, answer: Answer) -> Span | None:
        """The tokens of an answer; None if they are not recorded."""
        if answer.row is None or answer.span is None or answer.row >= len(self.rows):
            return None
        spans = self.rows[answer.row].spans
        return spans[answer.span] if answer.span < len(spans) else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rollout came to, without its texts and tokens: a run has many of them."""

    example_id: str
    generation: int
    reward: float | None
    left_out: str | None
    """Why it was not trained on; None if it was, or if it was a scored validation."""


@dataclass(frozen=True)
class RolloutTally:
    """Counts for the guards and for error messages."""

    num_rollouts: int = 0
    causes: Counter[LeftOutCause] = field(default_factory=Counter)
    """Rollouts that were left out, by cause."""
    failures: Sequence[FailureCount] = ()
    """Of these, the failed ones, with the most common error of each cause."""
    functions: Counter[str] = field(default_factory=Counter)
    """LLM calls by the function that made them."""
    models: Counter[str] = field(default_factory=Counter)
    """LLM calls by model."""
    untrainable: Counter[tuple[str, str]] = field(default_factory=Counter)
    """LLM calls that were left out because of sampling options, by function and options."""

    @property
    def num_usable(self) -> int:
        """Rollouts that could be trained on, whether or not the trainer chose them."""
        return self.num_rollouts - sum(count for cause, count in self.causes.items() if not cause.by_choice)

    @property
    def num_failed(self) -> int:
        return sum(count for cause, count in self.causes.items() if cause.failure)


def usage_by_purpose(records: Iterable[RolloutRecord]) -> PurposeUsage:
    """What the calls of the rollouts and of their scores took."""
    every = list(records)
    own, judged = added(record.usage for record in every), added(record.judge_usage for record in every)
    found: PurposeUsage = {"rollout": own, "judge": judged}
    return {purpose: used for purpose, used in found.items() if used}


def tally(records: Iterable[RolloutRecord]) -> RolloutTally:
    """Count in one pass; the records may come from a generator and need not fit into memory."""
    counts = RolloutTally()
    num_rollouts = 0
    errors: list[tuple[str, str | None]] = []
    for record in records:
        num_rollouts += 1
        counts.functions.update(record.functions)
        counts.models.update(record.models)
        counts.untrainable.update(
            {(name, how): n for name, own in record.untrainable_calls.items() for how, n in own.items()}
        )
        if record.left_out is not None:
            counts.causes[record.left_out] += 1
        if record.problem is not None:
            errors.append((record.problem, record.error))
    return RolloutTally(
        num_rollouts, counts.causes, counted(errors), counts.functions, counts.models, counts.untrainable
    )


def first_failure(record: RolloutRecord, phase: Phase, epoch: int) -> FirstFailure | None:
    """The entry of a rollout in `failures.txt`; None if it did not fail."""
    if record.problem is None:
        return None
    where = f"training, epoch {epoch_number(epoch)}" if phase is Phase.TRAIN else f"held-out {after_epoch(epoch)}"
    rollout = f"{where}, example {record.example_id}, generation {record.generation}"
    return FirstFailure(rollout=rollout, cause=record.problem, error=record.error, traceback=record.traceback)
