"""The reward: 1 for a won game, else 0, so that the mean reward is the win rate."""

from collections.abc import AsyncGenerator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.cli.register_workflow import register_evaluator
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.evaluator_model import EvalInputItem, EvalOutputItem
from tic_tac_toe.agent import GameRecord
from tic_tac_toe.game import Outcome


class WinConfig(EvaluatorBaseConfig, name="tic_tac_toe_win"):
    """Scores 1 for a game that the agent won, and 0 for a draw, a loss or an illegal move."""


class WinEvaluator(BaseEvaluator):
    """Reads the game record that the workflow returned."""

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        game = GameRecord.model_validate_json(item.output_obj)
        return EvalOutputItem(id=item.id, score=float(game.outcome == Outcome.WON), reasoning=game.model_dump())


@register_evaluator(config_type=WinConfig)
async def tic_tac_toe_win(config: WinConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Register the evaluator."""
    yield EvaluatorInfo(config=config, evaluate_fn=WinEvaluator().evaluate, description="1 if the agent won")
