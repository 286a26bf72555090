"""`command_reward`: the score is a number that the program writes to its reward file."""

from collections.abc import AsyncGenerator

from pydantic import BaseModel

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType
from nat.errors import EvaluationError
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.registry.decorators import register_evaluator

COMMAND_STEP = "command"
"""Name of the step that records a run of the program."""


class CommandRecord(BaseModel):
    """The output of that step."""

    exit_code: int | None
    """None if the program was ended after its time limit."""
    reward: float | None = None
    """The number in the reward file."""
    folder: str | None = None
    """Path of the kept folder."""


class CommandRewardConfig(EvaluatorBaseConfig, name="command_reward"):
    """The score is the number in the `reward_file` of a `command`."""


class CommandRewardEvaluator(BaseEvaluator):
    """Raises an error if the program wrote no number; 0 would be a guess."""

    def __init__(self) -> None:
        super().__init__(tqdm_desc="command_reward")

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        rewards = [reward for step in item.trajectory if (reward := _reward(step)) is not None]
        if not rewards:
            raise EvaluationError("no program wrote a reward: is the workflow a `command` with a `reward_file`?")
        return EvalOutputItem(id=item.id, score=rewards[-1], reasoning={"rewards": rewards})


def _reward(step: IntermediateStep) -> float | None:
    if step.event_type is not IntermediateStepType.CUSTOM_END or step.name != COMMAND_STEP or step.data is None:
        return None
    return CommandRecord.model_validate(step.data.output).reward


@register_evaluator(config_type=CommandRewardConfig)
async def command_reward(config: CommandRewardConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """The evaluator under its registered name."""
    yield EvaluatorInfo(
        config=config, evaluate_fn=CommandRewardEvaluator().evaluate, description="The reward that the program wrote"
    )
