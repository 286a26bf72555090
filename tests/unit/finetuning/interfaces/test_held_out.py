from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.data_models.finetuning import RewardFunctionConfig
from nat.finetuning.interfaces.held_out import held_out_records, scores_by_example
from nat.runs.rollouts import LeftOutCause

MATCH = RewardFunctionConfig(name="match")


def played(scores):
    """An evaluation's output by item id; None is an item without a score."""
    fields = {"input_obj": "q", "expected_output_obj": "a", "output_obj": "b"}
    items = [EvalInputItem(id=i, repetition_of=i.rpartition("_rep")[0] or None, **fields) for i in scores]
    scored = [EvalOutputItem(id=item_id, score=score, reasoning=None) for item_id, score in scores.items()]
    results = [("match", EvalOutput(average_score=0.0, eval_output_items=scored))]
    return EvaluationRunOutput(eval_input=EvalInput(eval_input_items=items), evaluation_results=results)


def test_repetitions_of_an_example_are_one_example():
    """Repetitions are not independent, so their mean is the example's score."""
    output = played({"a_rep0": 1.0, "a_rep1": 0.0, "a_rep2": None, "b_rep0": None, "b_rep1": None, "b_rep2": None})
    records = held_out_records(output, MATCH)
    assert [(r.example_id, r.generation) for r in records] == [(e, g) for e in ("a", "b") for g in range(3)]
    assert scores_by_example(records) == {"a": 0.5, "b": None}


def test_an_example_that_is_played_once_keeps_its_score():
    """An example that is played once keeps its score."""
    assert scores_by_example(held_out_records(played({"a": 1.0, "b": 0.25}), MATCH)) == {"a": 1.0, "b": 0.25}


def test_failed_score_counts_failures():
    """The failure is counted as one all the same."""
    counting = RewardFunctionConfig(name="match", failed_score=0)
    records = held_out_records(played({"a": 1.0, "b": None}), counting)
    assert scores_by_example(records) == {"a": 1.0, "b": 0.0}
    assert [record.left_out for record in records] == [None, LeftOutCause.NO_SCORE]
