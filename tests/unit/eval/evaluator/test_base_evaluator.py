"""Items are scored concurrently, and one that fails affects no other."""

import asyncio
import copy
import threading

import pytest

from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutputItem
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.scoring import Scoring


class Lengths(BaseEvaluator):
    """Scores the length of the answer; raises for an empty one."""

    running = 0
    most = 0

    async def evaluate_item(self, item):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if item.output_obj is None:
            raise ValueError("nothing to measure")
        return EvalOutputItem(id=item.id, score=len(item.output_obj), reasoning=asyncio.current_task().get_name())


def inputs(*answers) -> EvalInput:
    return EvalInput(
        eval_input_items=[
            EvalInputItem(id=str(n), input_obj="", expected_output_obj=None, output_obj=a)
            for n, a in enumerate(answers)
        ]
    )


@pytest.mark.parametrize("wrong", [None, 1.0, {"id": "0", "score": 1.0}])
async def test_a_result_that_is_no_item_is_named(wrong):
    """Evaluators often return a plain number or nothing; the error names the value."""

    class Slips(Lengths):
        async def evaluate_item(self, item):
            return wrong

    [item] = (await Slips().evaluate(inputs("abc"))).eval_output_items
    assert item.score is None
    assert item.error == f"evaluate_item returned {wrong!r}, not an EvalOutputItem"


async def test_an_evaluator_may_block_and_forget_the_id():
    """One that is not async runs in a thread, and its score is that of the item that it was given."""

    class Blocks(BaseEvaluator):
        def evaluate_item(self, item):
            return EvalOutputItem(id=0, score=threading.current_thread() is not threading.main_thread(), reasoning=None)

    items = (await Blocks().evaluate(inputs("a", "b"))).eval_output_items
    assert [(item.id, item.score) for item in items] == [("0", True), ("1", True)]


async def test_an_item_that_hangs_fails_alone():
    """Each score is limited by `eval.general.scoring_timeout`, so the pass needs no limit."""

    class Hangs(Lengths):
        async def evaluate_item(self, item):
            await asyncio.sleep(1000 if item.output_obj is None else 0.4)
            return EvalOutputItem(id=item.id, score=1, reasoning=None)

    given = inputs("a", None, "b", "c").eval_input_items
    result = await Scoring(per_answer=1).output_of(Hangs(max_concurrency=1).evaluate, given, at_a_time=8)
    assert [item.score for item in result.eval_output_items] == [1, None, 1, 1]
    assert result.eval_output_items[1].error == "no score within 1 s (eval.general.scoring_timeout)"
    assert [item.timed_out for item in result.eval_output_items] == [False, True, False, False]


async def test_an_evaluator_may_copy_what_it_is_given():
    """Also deeply, although a time limit has no copy; the limit for all answers still holds."""

    class Copies(Lengths):
        async def evaluate(self, eval_input):
            return await super().evaluate(copy.deepcopy(eval_input))

    scoring = Scoring(per_answer=10)
    result = await scoring.output_of(Copies().evaluate, inputs("abc").eval_input_items, at_a_time=8)
    assert result.average_score == 3


async def test_an_unrequested_cancellation_is_an_items_error():
    """A CancelledError of the evaluator cancels no run; one from outside is passed on."""

    class Leaks(Lengths):
        async def evaluate_item(self, item):
            if item.output_obj is None:
                raise asyncio.CancelledError
            return await super().evaluate_item(item)

    result = await Leaks().evaluate(inputs("abc", None))
    assert [item.score for item in result.eval_output_items] == [3, None]
    assert result.eval_output_items[1].error == "CancelledError"


async def test_an_exception_is_an_item_without_score():
    """The item has the error and no score; the average is that of the others."""
    result = await Lengths().evaluate(inputs("abc", None, "a"))
    assert [item.score for item in result.eval_output_items] == [3, None, 1]
    assert result.eval_output_items[1].error == "ValueError: nothing to measure"
    assert result.average_score == 2


async def test_concurrency_is_bounded():
    """At most `max_concurrency` items are scored at the same time."""
    evaluator = Lengths(max_concurrency=3)
    await evaluator.evaluate(inputs(*"abcdefghij"))
    assert evaluator.most == 3
