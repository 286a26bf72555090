"""What has finished is given back as it was; it is neither played nor judged again."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from fakes.scripted_workflow import ScriptedWorkflow
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluate import EvalGeneralConfig
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import JournalError
from nat.eval.evaluate import EvaluationRun, EvaluationRunConfig, score_items
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.evaluator.group_evaluator import GroupEvaluator
from nat.rollout.keeping import Keeper, read_rollout, rollout_bytes
from nat.rollout.session import in_pass
from unit.rollout.test_step_lines import captured

ROWS = [{"id": "a", "question": "1", "answer": "1"}, {"id": "b", "question": "2", "answer": "2"}]


def rollout(output: Any = None, steps=(), error: RolloutFailure | None = None) -> Rollout:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    return Rollout("a", 3, output, list(steps), error, seed=2**60, started_at=at, seconds=0.1 + 0.2)


class Move(BaseModel):
    at: tuple[int, int]


class Kept:
    """What is kept, in memory."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str, str], bytes] = {}

    def keeper(self, *, with_failures: bool = False) -> Keeper:
        """That of a process that begins now."""
        return Keeper(dict(self.rows), self.rows.update, with_failures)


async def test_a_rollout_comes_back_with_its_steps():
    """Steps with tokens, tools and a failed attempt, the seed and the time are the same."""
    played = rollout("done", await captured())
    again = read_rollout(rollout_bytes(played))
    assert again == played


@pytest.mark.parametrize(
    "output",
    [
        "no Unicode: \udc00",
        (1, 2),
        {1: "a"},
        {"a": {1, 2}},
        b"\xff",
        object(),
        [Move(at=(1, 2))],
        {"a": (1,)},
    ],
)
def test_what_json_cannot_hold_is_not_kept(output):
    """It would come back as something else, which an evaluator may score differently."""
    assert rollout_bytes(rollout(output)) is None


async def evaluated(folder: Path, agent, keeper: Keeper):
    scripted = ScriptedWorkflow(folder, agent, ROWS)
    with scripted.registered(), in_pass(keeper=keeper):
        return await EvaluationRun(EvaluationRunConfig(config_file=scripted.config_file)).run_and_evaluate()


async def test_nothing_is_played_again(tmp_path):
    """The second process plays what the first one has not finished."""
    played, kept = [], Kept()

    async def agent(question):
        played.append(question)
        if question == "2" and len(played) < 3:
            raise ConnectionError("the server went away")
        return question

    first = await evaluated(tmp_path, agent, kept.keeper())
    assert [failure.item_id for failure in first.failures] == ["b"]
    second = await evaluated(tmp_path, agent, kept.keeper())
    assert (sorted(played), second.failures) == (["1", "2", "2"], [])
    assert [item.output_obj for item in second.eval_input.eval_input_items] == ["1", "2"]
    assert second.results_of("match").average_score == 1


async def test_a_failure_that_was_trained_without_stays(tmp_path):
    """The job of the epoch is known with the batch that lacks it."""
    played, kept = [], Kept()

    async def agent(question):
        played.append(question)
        raise ConnectionError("no")

    first = await evaluated(tmp_path, agent, kept.keeper())
    second = await evaluated(tmp_path, agent, kept.keeper(with_failures=True))
    assert len(played) == 2
    assert second.failures == first.failures


class Judge(BaseEvaluator):
    """Scores one item at a time, and waits forever on the item that it does not know."""

    def __init__(self, *known: str) -> None:
        super().__init__(max_concurrency=1)
        self.known, self.asked = known, list[str]()

    async def evaluate_item(self, item):
        self.asked.append(item.id)
        if item.id not in self.known:
            await asyncio.Event().wait()
        rewards = {0: 0.25, "a-uuid": 0.5}
        return EvalOutputItem(id=item.id, score=0.1 + 0.2, reasoning={"why": ["x", 1, None]}, step_rewards=rewards)


class Ranks(GroupEvaluator):
    """Scores the generations of an example together."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def evaluate_group(self, items):
        self.asked.append(items[0].example)
        return [EvalOutputItem(id=item.id, score=float(n), reasoning=None) for n, item in enumerate(items)]


class Config(EvaluatorBaseConfig, name="kept_judge"):
    pass


class RanksConfig(EvaluatorBaseConfig, name="kept_ranks"):
    @property
    def compares_generations(self) -> bool:
        return True


def items(*ids: str) -> list[EvalInputItem]:
    return [EvalInputItem(id=i, input_obj=i, expected_output_obj=i, output_obj=i) for i in ids]


async def judged(judge, kept: Keeper, *ids: str):
    info = EvaluatorInfo(config=Config(), evaluate_fn=judge.evaluate, description="")
    return await score_items("judge", info, items(*ids), EvalGeneralConfig(), kept.of_pass(0))


async def test_a_judge_that_is_killed_is_not_paid_twice():
    """Each score is kept as soon as it is there, with all of its fields; only the others are asked for."""
    kept, first, second = Kept(), Judge("a", "b"), Judge("c", "d")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await judged(first, kept.keeper(), "a", "b", "c", "d")
    output = await judged(second, kept.keeper(), "a", "b", "c", "d")
    assert (first.asked, second.asked) == (["a", "b", "c"], ["c", "d"])
    assert [item.id for item in output.eval_output_items] == ["a", "b", "c", "d"]
    plain = [item.model_dump(exclude={"id", "scoring"}) for item in output.eval_output_items]
    assert plain == [plain[-1]] * 4
    assert output.average_score == 0.1 + 0.2


async def test_a_group_is_judged_as_a_whole():
    """A group with a generation without a score is compared again; the others are not."""
    kept, ranks = Kept(), Ranks()
    info = EvaluatorInfo(config=RanksConfig(), evaluate_fn=ranks.evaluate, description="")
    given = [item.copy_with_updates(repetition_of=item.id[0]) for item in items("a0", "a1", "b0", "b1")]
    await score_items("ranks", info, given, EvalGeneralConfig(), kept.keeper().of_pass(0))
    del kept.rows[-1, "ranks", "b1"]
    output = await score_items("ranks", info, given, EvalGeneralConfig(), kept.keeper().of_pass(1))
    assert ranks.asked == ["a", "b", "b"]
    assert [item.score for item in output.eval_output_items] == [0, 1, 0, 1]


async def test_a_journal_that_cannot_be_written_is_no_fault_of_the_judge():
    """The error ends the evaluation, and stands alone; the judge is not asked for what cannot be kept."""

    def refuse(*_):
        raise JournalError("the disk is full")

    judge = Judge("a", "b", "c")
    with pytest.raises(JournalError, match="the disk is full"):
        await judged(judge, Keeper({}, refuse), "a", "b", "c")
    assert judge.asked == ["a"]
