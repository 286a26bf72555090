import asyncio

from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutputItem
from nat.eval.dataset import repeat_items
from nat.eval.evaluator.group_evaluator import GroupEvaluator
from nat.eval.scoring import Scoring


class Sizes(GroupEvaluator):
    """Scores each item with the size of its group; the example `bad` raises, and `slow` never ends."""

    async def evaluate_group(self, items):
        if items[0].example == "bad":
            raise ValueError("cannot compare")
        if items[0].example == "slow":
            await asyncio.Event().wait()
        return [EvalOutputItem(id=item.id, score=len(items), reasoning="") for item in items]


def rows(*ids):
    return [EvalInputItem(id=item_id, input_obj="q", expected_output_obj=None, output_obj="a") for item_id in ids]


def by_id(output):
    return {item.id: item.score if item.error is None else item.error for item in output.eval_output_items}


async def test_the_repetitions_of_an_example_are_a_group():
    """Groups need not be of equal size, since rollouts fail; ids that merely look like repetitions are none."""
    given = [*repeat_items(rows("a"), 3), *repeat_items(rows("b"), 2), *rows("b_rep7")]
    output = await Sizes().evaluate(EvalInput(eval_input_items=given))
    assert by_id(output) == {"a_rep0": 3, "a_rep1": 3, "a_rep2": 3, "b_rep0": 2, "b_rep1": 2, "b_rep7": 1}
    assert output.average_score == 14 / 6


async def test_a_group_that_fails_or_is_late_fails_alone():
    """Its items have no score and say why; its time is that of as many scores as it has items."""
    given = [*repeat_items(rows("bad", "slow", "good"), 2)]
    output = await Scoring(per_answer=0.5).output_of(Sizes().evaluate, given, at_a_time=8)
    assert by_id(output) == {
        **dict.fromkeys(["bad_rep0", "bad_rep1"], "ValueError: cannot compare"),
        **dict.fromkeys(["slow_rep0", "slow_rep1"], "no score within 1 s (eval.general.scoring_timeout)"),
        **dict.fromkeys(["good_rep0", "good_rep1"], 2),
    }
    assert [item.timed_out for item in output.eval_output_items] == [False, False, True, True, False, False]
