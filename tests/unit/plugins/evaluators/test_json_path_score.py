import pytest
from pydantic import ValidationError

from nat.data_models.evaluator import EvalInput, EvalInputItem
from nat.plugins.evaluators.json_path_score import JsonPathScoreConfig, JsonPathScoreEvaluator


async def scored(output, **config):
    item = EvalInputItem(id="a", input_obj="", expected_output_obj=None, output_obj=output)
    evaluator = JsonPathScoreEvaluator(JsonPathScoreConfig(**config))
    return (await evaluator.evaluate(EvalInput(eval_input_items=[item]))).eval_output_items[0]


@pytest.mark.parametrize(("output", "score"), [({"score": 0.25}, 0.25), ('{"score": 1}', 1.0), ({"score": True}, 1.0)])
async def test_the_score_is_read_from_the_output(output, score):
    """Records and JSON text work; a boolean counts as 1 or 0."""
    assert (await scored(output)).score == score


async def test_the_path_is_configurable():
    """`path` names any place in the output."""
    assert (await scored({"games": [{"won": 0.5}]}, path="$.games[0].won")).score == 0.5


@pytest.mark.parametrize("output", [{"won": 1}, "no json", {"score": "1"}, {"score": None}, {"score": float("nan")}])
async def test_an_output_without_a_number_there_has_no_score(output):
    """A missing number is no score of 0."""
    item = await scored(output)
    assert item.score is None
    assert "$.score" in item.error


def test_an_invalid_path_is_refused_with_the_config():
    """The error comes before any rollout."""
    with pytest.raises(ValidationError, match="is not a JSON path"):
        JsonPathScoreConfig(path="$.[")
