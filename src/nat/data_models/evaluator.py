"""Input and output of an evaluator."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from nat.data_models.common import TypedBaseModel
from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.rollout_failure import NO_SCORE, SCORED_TOO_LATE
from nat.data_models.score import plain_score


class EvaluatorBaseConfig(TypedBaseModel):
    """An evaluator, named in the YAML under `eval.evaluators`."""

    @property
    def needs_expected_answer(self) -> bool:
        """True if a row without an expected answer cannot be scored; a dataset without any is then an error at once."""
        return False

    @property
    def compares_generations(self) -> bool:
        """True if a score depends on the other generations of the example.

        The evaluator then gets all generations of an example in one call, with the same `EvalInputItem.example`.
        """
        return False


class EvalInputItem(BaseModel):
    """One dataset row, before and after the workflow ran on it."""

    id: Any
    """The row's id as the dataset has it; its row number as text if there is none."""
    repetition_of: Any = None
    """The row's id, if `id` names one of several generations of the row."""
    input_obj: Any
    """The input of the workflow."""
    expected_output_obj: Any
    """The expected answer from the dataset."""
    output_obj: Any = None
    """The answer of the workflow."""
    expected_trajectory: list[IntermediateStep] = Field(default_factory=list)
    trajectory: list[IntermediateStep] = Field(default_factory=list)
    """The steps of the run, in order."""
    full_dataset_entry: Any = None
    """The whole row."""

    @property
    def example(self) -> str:
        """Equal for the generations of one row."""
        return str(self.id if self.repetition_of is None else self.repetition_of)

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
    score: Annotated[Any, BeforeValidator(plain_score)]
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

    relative: bool = False
    """True if the score compares the generations of an example, so that it says nothing about other examples."""

    @property
    def cause(self) -> str:
        """Why there is no score, as failures are counted."""
        return SCORED_TOO_LATE if self.timed_out else NO_SCORE


class EvalOutput(BaseModel):
    """The scores of one evaluator, with their mean over the items that have one."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    average_score: Any
    eval_output_items: list[EvalOutputItem]
