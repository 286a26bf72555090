import asyncio
import re
from random import Random

import pytest
from pydantic import ValidationError

from fakes.scripted_judge import Faults, ScriptedJudge, judge_input, tau_b
from nat.data_models.evaluator import ComparisonFacts, EvalInput
from nat.plugins.relative_judge.config import RelativeJudgeConfig
from nat.plugins.relative_judge.evaluator import RelativeJudge


def judge(faults=Faults(), **options):  # noqa: B008 - a frozen record
    scripted = ScriptedJudge(faults, Random(1))
    return RelativeJudge(RelativeJudgeConfig(llm_name="judge", **options), scripted), scripted


async def scored(evaluator, *qualities, example="a"):
    items = [judge_input(example, number, quality) for number, quality in enumerate(qualities)]
    return (await evaluator.evaluate(EvalInput(eval_input_items=items))).eval_output_items


def took(results):
    return sum((result.comparison for result in results), ComparisonFacts())


async def test_the_scores_are_those_of_the_judge():
    """Shuffled or not, each attempt gets the score that was given to its own text."""
    evaluator, scripted = judge(both_orders=0)
    results = await scored(evaluator, 0.9, 0.1, 0.5)
    assert [result.score for result in results] == [0.9, 0.1, 0.5]
    assert scripted.calls == 1


async def test_the_order_is_shuffled_and_seeded():
    """Another seed shows the attempts in another order, and the same one in the same order."""

    async def order(seed):
        evaluator, _ = judge(Faults(bias=1, blind=True), seed=seed, both_orders=0)
        return [result.score for result in await scored(evaluator, *(n / 10 for n in range(8)))]

    assert await order(1) == await order(1)
    assert len({tuple(await order(seed)) for seed in range(4)}) == 4


async def test_attempts_with_the_same_text_are_shown_once():
    """The same text gets the same score, whatever the judge's noise."""
    evaluator, _ = judge(Faults(noise=0.3))
    results = await scored(evaluator, 0.4, 0.8, 0.4, 0.4)
    assert results[0].score == results[2].score == results[3].score


async def test_equal_attempts_need_no_judge():
    """A group of copies is a tie without a call, so it has no learning signal."""
    results = await scored(judge()[0], 0.4, 0.4, 0.4)
    assert [result.score for result in results] == [0.5, 0.5, 0.5]
    assert took(results) == ComparisonFacts()


async def test_one_attempt_has_no_score():
    """Nothing to compare with is a failure and no number."""
    [result] = await scored(judge()[0], 0.4)
    assert result.score is None
    assert "this example has only one with an answer" in result.error


async def test_a_failed_judgement_fails_its_group_alone():
    """Other groups keep their scores."""
    evaluator, scripted = judge()
    usual = scripted.reply
    scripted.reply = lambda shown: "no" if "task bad" in shown else usual(shown)
    items = [judge_input(example, n, n / 2) for example in ("good", "bad") for n in range(2)]
    results = (await evaluator.evaluate(EvalInput(eval_input_items=items))).eval_output_items
    assert [result.score is None for result in results] == [False, False, True, True]
    assert "the judge gave no valid scores in two replies" in results[2].error


async def test_a_pair_is_judged_in_both_orders():
    """Its result would hang on the place otherwise: a blind judge gives a tie, and its bias is measured."""
    results = await scored(judge(Faults(bias=1, blind=True), both_orders=0)[0], 0.2, 0.8)
    assert [result.score for result in results] == [0.5, 0.5]
    assert took(results).position_bias == pytest.approx(1)


async def test_both_orders_cancel_a_bias():
    """With `both_orders: 1` the ranking is the planted one although the judge prefers what it sees first."""
    planted = [n / 16 for n in range(8)]

    async def tau(both_orders):
        evaluator, scripted = judge(Faults(bias=0.4), both_orders=both_orders)
        found = await scored(evaluator, *planted)
        return tau_b([result.score for result in found], planted), took(found), scripted.calls

    once, _, _ = await tau(0)
    twice, facts, calls = await tau(1)
    assert once < 0.7
    assert twice == 1
    assert facts.position_bias > 0.3
    assert (calls, facts.pairs) == (2, pytest.approx(28))


async def test_a_share_of_the_groups_measures_the_order():
    """`both_orders` is the share of groups that are judged twice."""
    evaluator, _ = judge(both_orders=0.3)
    twice = [took(await scored(evaluator, 0.1, 0.5, 0.9, example=str(n))).pairs > 0 for n in range(200)]
    assert 40 <= sum(twice) <= 80


def recorded(evaluator, scripted):
    """The qualities that each call shows, in its order, and the characters of their texts."""
    calls = []

    async def ask(messages):
        texts = re.findall(r"^<attempt \d+ \w+>\n(.*?)\n</attempt", messages[1]["content"], re.DOTALL | re.MULTILINE)
        calls.append([(float(re.search(r"quality (\d\.\d+)", text)[1]), len(text)) for text in texts])
        return await scripted(messages)

    evaluator._ask = ask
    return calls


async def test_no_call_is_larger_than_the_limits():
    """`max_group` and `max_chars` count the attempt that joins a call to the first one, too."""
    for limit in ({"max_group": 4}, {"max_group": 64, "max_chars": 1000}):
        evaluator, scripted = judge(both_orders=0, judged="answer", **limit)
        calls = recorded(evaluator, scripted)
        await scored(evaluator, *(n / 64 for n in range(64)))
        assert len(calls) > 2
        assert max(map(len, calls)) <= limit["max_group"]
        assert max(sum(size for _, size in call) for call in calls) <= limit.get("max_chars", 10**6)
        assert len({quality for call in calls for quality, _ in call}) == 64


async def test_attempts_beyond_the_limit_are_cut_to_half_of_it():
    """Two of them fit into one call, however long they are; else neither would be compared with the other."""
    evaluator, scripted = judge(both_orders=0, max_chars=1000, judged="answer")
    calls = recorded(evaluator, scripted)
    items = [judge_input("a", number, number / 4) for number in range(3)]
    long = [item.model_copy(update={"output_obj": f"{item.output_obj} {'x' * 5000}"}) for item in items]
    await evaluator.evaluate(EvalInput(eval_input_items=long))
    assert [len(call) for call in calls] == [2, 2]


async def test_the_attempt_that_joins_the_calls_has_no_fixed_place():
    """What stands first is liked by many judges, so its place is drawn in every call."""
    places = set()
    for seed in range(8):
        evaluator, scripted = judge(both_orders=0, max_group=4, seed=seed)
        calls = recorded(evaluator, scripted)
        await scored(evaluator, *(n / 16 for n in range(10)))
        shown = [[quality for quality, _ in call] for call in calls]
        [anchor] = set(shown[0]).intersection(*shown[1:])
        places |= {call.index(anchor) for call in shown[1:]}
    assert len(places) > 1


async def test_without_a_cache_the_order_is_a_new_one():
    """The same attempts are not shown in the same places again, so that a bias of the judge averages out."""
    evaluator, scripted = judge(both_orders=0, cache=False)
    calls = recorded(evaluator, scripted)
    for _ in range(4):
        await scored(evaluator, *(n / 8 for n in range(8)))
    assert len({tuple(call) for call in calls}) == 4


@pytest.mark.parametrize("limit", [{"max_group": 4}, {"max_chars": 1000}])
async def test_a_large_group_takes_several_calls(limit):
    """Calls share an attempt that puts their scores on one scale, so an exact judge still finds the whole ranking."""
    planted = [n / 64 for n in range(64)]
    evaluator, scripted = judge(both_orders=0, **limit)
    results = await scored(evaluator, *planted)
    assert tau_b([result.score for result in results], planted) == 1
    assert scripted.calls > 2


async def test_known_attempts_are_not_judged_again():
    """Within a run the same attempts keep their scores; with `cache: false` they are judged anew, in a new order."""
    for cache, reused in ((True, 1), (False, 0)):
        evaluator, scripted = judge(Faults(noise=0.2), cache=cache)
        first, calls = await scored(evaluator, 0.2, 0.4, 0.6), scripted.calls
        second = await scored(evaluator, 0.2, 0.4, 0.6)
        assert ([a.score for a in first] == [b.score for b in second]) is cache
        assert took(second).reused == pytest.approx(reused)
        assert (scripted.calls == calls) is cache


async def test_max_concurrency_limits_the_groups():
    """At most so many groups wait for the judge."""
    waiting, most = 0, 0
    evaluator, scripted = judge(max_concurrency=2, both_orders=0)

    async def ask(messages):
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0)
        waiting -= 1
        return await scripted(messages)

    evaluator._ask = ask
    items = [judge_input(str(group), n, n / 4) for group in range(6) for n in range(3)]
    await evaluator.evaluate(EvalInput(eval_input_items=items))
    assert most == 2


@pytest.mark.parametrize(
    "options", [{"rubric": "  "}, {"max_group": 1}, {"max_chars": 10}, {"both_orders": 1.1}, {"rubrik": "x"}]
)
def test_options_that_cannot_work_are_refused(options):
    """An empty rubric, a group of one, a share above one and a misspelt key are errors of the configuration."""
    with pytest.raises(ValidationError):
        RelativeJudgeConfig(llm_name="judge", **options)


async def test_the_judge_sees_only_answers_if_asked():
    """`judged: answer` hides the way to the answer, and the rubric is the user's."""
    seen = []
    evaluator, scripted = judge(rubric="Short is good.", judged="answer", both_orders=0)

    async def ask(messages):
        seen.extend(messages)
        return await scripted(messages)

    evaluator._ask = ask
    await scored(evaluator, 0.1, 0.2, 0.3)
    assert "Short is good." in seen[0]["content"]
    assert "An answer of quality 0.300000." in seen[1]["content"]
