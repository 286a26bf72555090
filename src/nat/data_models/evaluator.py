"""Input and output of an evaluator."""

from typing import Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from nat.data_models.common import TypedBaseModel
from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.rollout_failure import NO_SCORE, SCORED_TOO_LATE


class EvaluatorBaseConfig(TypedBaseModel):
    """An evaluator, named in the YAML under `eval.evaluators`."""

    @property
    def needs_expected_answer(self) -> bool:
        """True if a row without an expected answer cannot be scored; a dataset without any is then an error at once."""
        return False


class EvalInputItem(BaseModel):
    """One dataset row, before and after the workflow ran on it."""

    id: Any
    """The row's id as text, or its row number."""
    input_obj: Any
    """The input of the workflow."""
    expected_output_obj: Any
    """The expected answer from the dataset."""
    output_obj: Any = None
    """The answer of the workflow."""
    expected_trajectory: list[IntermediateStep] = []
    trajectory: list[IntermediateStep] = []
    """The steps of the run, in order."""
    full_dataset_entry: Any = None
    """The whole row."""

    def copy_with_updates(self, **updates: Any) -> Self:
        """A copy of this item with some fields replaced."""
        return self.model_copy(update=updates)


class EvalInput(BaseModel):
    """The items of one evaluation."""

    eval_input_items: list[EvalInputItem]


class EvalOutputItem(BaseModel):
    """The score of one item; an item that could not be scored has `score` None and an `error`."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    id: Any
    score: Any
    reasoning: Any
    error: str | None = None
    """Why there is no score."""
    traceback: str | None = Field(default=None, exclude=True, repr=False)
    """Traceback of the error, if the evaluator raised one; written to `failures.txt` only."""
    timed_out: bool = Field(default=False, exclude=True)
    """True if there is no score because of a time limit."""
    step_rewards: dict[int | str, float] | None = None
    """Rewards of single steps, by the number of an LLM call (from 0, or -1 for the last) or by a step's UUID. With
    `finetuning.reward_function.credit` they are trained on instead of the score, which is still reported."""

    @property
    def cause(self) -> str:
        """Why there is no score, as failures are counted."""
        return SCORED_TOO_LATE if self.timed_out else NO_SCORE


class EvalOutput(BaseModel):
    """The scores of one evaluator, with their mean over the items that have one."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    average_score: Any
    eval_output_items: list[EvalOutputItem]


class EvalOutputItemLike(Protocol):
    """The fields of a scored item that reports read."""

    id: Any
    score: Any
    reasoning: Any


class EvalOutputLike(Protocol):
    """The fields of an evaluator's output that reports read."""

    average_score: Any
    eval_output_items: list[Any]
