import asyncio

from nat.data_models.evaluator import EvalInputItem, EvalOutput, EvalOutputItem
from nat.eval.comparison import AgainstFirst, SidePasses, compared
from nat.rollout.session import in_pass


def items(answers):
    return [
        EvalInputItem(id=item_id, input_obj="q", expected_output_obj=None, output_obj=answer)
        for item_id, answer in answers.items()
    ]


class Ranks:
    """Scores an answer by the share of the other answers to the same example that are smaller; counts its calls."""

    def __init__(self):
        self.calls = []

    async def __call__(self, given):
        self.calls.append([item.id for item in given])
        scored = []
        for item in given:
            others = [other.output_obj for other in given if other.example == item.example and other is not item]
            score = sum(other < item.output_obj for other in others) / len(others) if others else None
            scored.append(EvalOutputItem(id=item.id, score=score, reasoning="r", error="alone"))
        return EvalOutput(average_score=None, eval_output_items=scored)


def scores(output):
    return {item.id: item.score for item in output.eval_output_items}


async def test_passes_side_by_side_are_scored_in_one_call():
    """Each pass gets the scores of its own answers; a failed rollout is in no group."""
    score = Ranks()
    with in_pass(comparison=SidePasses(3)):
        outputs = await asyncio.gather(
            compared("judge", items({"a": 3, "b": 1}), score),
            compared("judge", items({"b": 2}), score),
            compared("judge", items({"b": 0, "a": 1}), score),
        )
    assert [scores(output) for output in outputs] == [{"a": 1, "b": 0.5}, {"b": 1}, {"b": 0, "a": 0}]
    assert outputs[0].average_score == 0.75
    assert score.calls == [["a_rep0", "b_rep0", "b_rep1", "b_rep2", "a_rep2"]]


async def test_held_out_answers_are_compared_with_those_from_before_training():
    """The first validation defines the middle and asks nobody; later ones count wins, ties and losses against it."""
    score, first = Ranks(), {}
    with in_pass(comparison=AgainstFirst(first, before_training=True)):
        before = await compared("judge", items({"a": 2, "b": 2, "c": 2}), score)
    assert (scores(before), score.calls) == ({"a": 0.5, "b": 0.5, "c": 0.5}, [])
    for _ in range(2):
        with in_pass(comparison=AgainstFirst(first, before_training=False)):
            after = await compared("judge", items({"a": 3, "b": 1, "c": 2}), score)
        assert scores(after) == {"a": 1, "b": 0, "c": 0.5}
    assert after.eval_output_items[0].relative
    assert after.eval_output_items[0].reasoning == {"before": 0.0, "after": 1.0, "why": "r"}


async def test_an_answer_without_one_from_before_has_no_score():
    """A rollout that failed before training, or whose comparison failed, is left out and not scored."""
    score, first = Ranks(), {}
    with in_pass(comparison=AgainstFirst(first, before_training=True)):
        await compared("judge", items({"a": 2}), score)

    async def failing(given):
        unscored = [EvalOutputItem(id=item.id, score=None, reasoning=None, error="down") for item in given]
        return EvalOutput(average_score=None, eval_output_items=unscored)

    with in_pass(comparison=AgainstFirst(first, before_training=False)):
        [known, new] = (await compared("judge", items({"a": 2, "b": 3}), failing)).eval_output_items
    assert (known.id, known.score, known.error) == ("a", None, "down")
    assert (new.id, new.score) == ("b", None)
    assert "no answer from before training" in new.error


async def test_without_other_passes_an_evaluation_compares_its_own_repetitions():
    """`nat eval --reps` needs no comparison around it; every score is marked as a relative one."""

    async def plain(given):
        return EvalOutput(
            average_score=1.0, eval_output_items=[EvalOutputItem(id=i.id, score=1, reasoning="") for i in given]
        )

    output = await compared("judge", items({"a": 1}), plain)
    assert output.eval_output_items[0].relative
