import pytest

from nat.eval.evaluator.evaluator_model import EvalInput, EvalInputItem
from tic_tac_toe.agent import GameRecord
from tic_tac_toe.game import Outcome
from tic_tac_toe.reward import WinEvaluator


def item(output: str) -> EvalInputItem:
    return EvalInputItem(id="0", input_obj="X", expected_output_obj=None, output_obj=output)


@pytest.mark.parametrize("outcome", Outcome)
async def test_only_a_won_game_has_a_reward(outcome: Outcome) -> None:
    """Draws, losses and illegal moves have a reward of 0, so the mean reward is the win rate."""
    game = GameRecord(opener="X", board=[], answers=[], outcome=outcome)
    scored = await WinEvaluator().evaluate_item(item(game.model_dump_json()))
    assert scored.score == (1.0 if outcome == Outcome.WON else 0.0)
    assert scored.reasoning["outcome"] == outcome


async def test_an_output_that_is_no_game_has_no_score() -> None:
    """Another output than a game record is an error, not a lost game."""
    scored = await WinEvaluator().evaluate(EvalInput(eval_input_items=[item("nonsense")]))
    assert scored.eval_output_items[0].score is None
    assert "Invalid JSON" in str(scored.eval_output_items[0].error)
