import asyncio
from unittest.mock import AsyncMock, MagicMock

import pytest

from fakes.llm_steps import call, failed_steps, steps, user
from fakes.made_spans import rollout
from nat.art.client.config import ARTTrajectoryBuilderConfig
from nat.art.client.trainer import ARTTrajectoryBuilder
from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.data_models.finetuning import FinetuneConfig, RewardFunctionConfig
from nat.data_models.rollout_failure import COUNTED, RolloutFailure
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder, EvalTrajectoryBuilderConfig
from nat.rollout.session import current_pass
from nat.runs.rollouts import LeftOutCause, tally


def item(name, *calls):
    made = calls or (call([user(name)], "answer", ids=([1], [2])),)
    return EvalInputItem(id=name, input_obj=name, expected_output_obj="", output_obj="o", trajectory=steps(*made))


def output(items, scores, **fields):
    scored = [EvalOutputItem(id=name, score=score, reasoning="why") for name, score in scores.items()]
    return EvaluationRunOutput(
        eval_input=EvalInput(eval_input_items=items),
        evaluation_results=[
            ("other", EvalOutput(average_score=None, eval_output_items=[])),
            ("match", EvalOutput(average_score=None, eval_output_items=scored)),
        ],
        rollouts=[rollout(str(i.id), generation=7, seed=11, steps=i.trajectory, seconds=0.5) for i in items],
        **fields,
    )


class Scripted(EvalTrajectoryBuilder):
    """A builder whose passes return prepared outputs or raise them."""

    def __init__(self, *outputs, generations=None):
        super().__init__(EvalTrajectoryBuilderConfig(num_generations=generations or len(outputs)))
        self.outputs = iter(outputs)

    async def run_eval(self):
        prepared = next(self.outputs)
        await asyncio.sleep(0)
        if isinstance(prepared, BaseException):
            raise prepared
        return prepared


async def ready(builder, *, failed_score=None, **fields):
    reward = fields.pop("reward", "match")
    function = RewardFunctionConfig(name=reward, failed_score=failed_score) if reward else None
    await builder.initialize(FinetuneConfig(reward_function=function, **fields))
    return builder


async def collected(builder, **fields):
    await ready(builder, **fields)
    await builder.start_run("r", meta={"epoch": 3, "trainer_config": {}})
    return await builder.finalize("r", meta={"epoch": 3, "trainer_config": {}})


async def test_scores_by_other_evaluators_are_recorded_beside_the_reward():
    """They are shown and diagnosed, and not trained on; what is no score is absent."""
    prepared = output([item("a"), item("b")], {"a": 1.0, "b": 0.0})
    others = [("a", 0.25), ("b", float("nan")), ("unknown", 1.0)]
    scored = [EvalOutputItem(id=name, score=score, reasoning=None) for name, score in others]
    prepared.evaluation_results[0] = ("other", EvalOutput(average_score=None, eval_output_items=scored))
    builder = Scripted(prepared)
    await collected(builder)
    assert [record.scores_beside for record in builder.rollouts("r")] == [{"other": 0.25}, {}]
    assert [record.reward for record in builder.rollouts("r")] == [1.0, 0.0]


async def test_evaluation_runs_hold_the_passes_until_they_are_finalized():
    """The guide's tests read `evaluation_runs`; an id can be used again after `finalize`."""
    builder = await ready(Scripted(output([], {}), output([], {}), output([], {}), output([], {}), generations=2))
    await builder.start_run("r")
    assert len(builder.evaluation_runs["r"]) == 2
    with pytest.raises(ValueError, match="Run r is already in progress"):
        await builder.start_run("r")
    await builder.finalize("r")
    assert "r" not in builder.evaluation_runs
    await builder.start_run("r")
    await builder.finalize("r")
    with pytest.raises(ValueError, match="No evaluation runs found for run_id: r"):
        await builder.finalize("r")


async def test_left_out_rollouts_are_recorded_with_their_cause():
    """Rollouts that failed, timed out, or lack a score, a target call or logprobs are not rewarded 0."""
    items = [
        item("raised"),
        item("late"),
        item("unscored"),
        item("missing"),
        item("nan"),
        item("fine"),
        item("silent", call([user("q")], "a", logprobs=None)),
    ]
    failures = [
        RolloutFailure(item_id="raised", kind="raised", type="KeyError", message="x"),
        RolloutFailure(item_id="late", kind="timeout", type="TimeoutError", message="5 s"),
    ]
    scores = {"unscored": None, "nan": float("nan"), "fine": 1.0, "silent": 1.0}
    builder = Scripted(output(items, scores, failures=failures))
    collection = await collected(builder)
    assert [[t.reward for t in group] for group in collection.trajectories] == [[1.0]]
    causes = {record.example_id: record.left_out for record in builder.rollouts("r")}
    assert causes == {
        "raised": LeftOutCause.FAILED,
        "late": LeftOutCause.TIMED_OUT,
        "unscored": LeftOutCause.NO_SCORE,
        "missing": LeftOutCause.NO_SCORE,
        "nan": LeftOutCause.NO_SCORE,
        "fine": None,
        "silent": LeftOutCause.NO_LOGPROBS,
    }
    assert {(record.seed, record.seconds) for record in builder.rollouts("r")} == {(11, 0.5)}


async def test_failed_score_is_the_reward_of_a_failed_rollout():
    """Its calls are trained, and its error is reported, but it does not count as failed; without a call it does."""
    items = [item(name) for name in ("raised", "unscored", "fine")]
    silent = EvalInputItem(id="silent", input_obj="q", expected_output_obj="", output_obj=None, trajectory=[])
    failures = [
        RolloutFailure(item_id=name, kind="raised", type="KeyError", message="x") for name in ("raised", "silent")
    ]
    builder = Scripted(output([*items, silent], {"unscored": None, "fine": 1.0}, failures=failures))
    collection = await collected(builder, failed_score=-1)
    assert [[t.reward for t in group] for group in collection.trajectories] == [[-1.0], [-1.0], [1.0]]
    counts = tally(builder.rollouts("r"))
    assert dict(counts.causes) == {LeftOutCause.FAILED: 1}
    assert {each.cause: each.count for each in counts.failures} == {COUNTED: 2, LeftOutCause.FAILED: 1}
    assert builder.rollouts("r")[0].error == "KeyError: x"


async def test_a_rollout_without_an_answer_of_its_model_has_failed():
    """An agent that catches the errors of its calls and answers all the same is no success: the last error is told."""
    swallowed, retried = item("swallowed"), item("retried")
    swallowed.trajectory = [*failed_steps("no route"), *failed_steps("its context has 128 tokens", status=400)]
    retried.trajectory = [*failed_steps("busy", status=503), *retried.trajectory]
    builder = Scripted(output([swallowed, retried], {"swallowed": 1.0, "retried": 1.0}))
    await collected(builder)
    lost, answered = builder.rollouts("r")
    assert (lost.left_out, lost.reward) == (LeftOutCause.CALLS_FAILED, None)
    assert lost.error == "Error code: 400 - its context has 128 tokens"
    assert (answered.left_out, answered.reward, answered.num_failed_calls) == (None, 1.0, 1)
    assert LeftOutCause.CALLS_FAILED.failure


async def test_a_record_has_the_policy_version_of_each_answer():
    """Weights may change during a rollout; answers of other models than the target do not count."""
    versions = ["m@1", "m@2", "m@2"]
    calls = [call([user(v)], "a", ids=([1], [2]), policy_version=v) for v in versions]
    judge = call([user("q")], "a", ids=([1], [2]), llm_name="judge", policy_version="judge-7", finish_reason="length")
    builder = Scripted(output([item("a", *calls, judge)], {"a": 1.0}))
    collection = await collected(builder, target_model="student")
    (record,) = builder.rollouts("r")
    assert record.policy_versions == {"m@1": 1, "m@2": 2}
    assert collection.trajectories[0][0].metadata["policy_versions"] == record.policy_versions
    assert not record.truncated


async def test_an_error_in_compute_reward_is_a_missing_score():
    """It is user code, so an error or a hang fails only its rollout; a TimeoutError of its own is an ordinary error."""

    class Strict(Scripted):
        reward_seconds = 0.05

        async def compute_reward(self, output_item, meta=None):
            if output_item.id == "a":
                await asyncio.sleep(60)
            if output_item.id == "b":
                raise TimeoutError("the judge")
            return 2.0

    builder = Strict(output([item("a"), item("b"), item("c")], {"a": 1.0, "b": 1.0, "c": 1.0}))
    collection = await collected(builder)
    assert [[t.reward for t in group] for group in collection.trajectories] == [[2.0]]
    assert [record.error for record in builder.rollouts("r") if record.error] == [
        "compute_reward: it did not end within 0.05 s",
        "compute_reward: TimeoutError: the judge",
    ]


async def test_a_failed_pass_ends_the_others_and_is_raised():
    """The first failure is raised; no task is left behind."""
    builder = await ready(Scripted(output([], {}), RuntimeError("dataset gone")))
    await builder.start_run("r")
    tasks = builder.evaluation_runs["r"]
    with pytest.raises(RuntimeError, match="dataset gone"):
        await builder.finalize("r")
    assert all(task.done() for task in tasks)
    assert builder.evaluation_runs == {}


class Plays(EvalTrajectoryBuilder):
    """A builder whose passes score the chosen examples of a dataset by a function of example and generation."""

    def __init__(self, score, **options):
        super().__init__(EvalTrajectoryBuilderConfig(num_generations=2, **options))
        self.score = score
        self.played = []

    async def run_eval(self):
        examples = [f"e{n}" for n in range(6)]
        chosen = sorted(examples if current_pass().choose is None else current_pass().choose(examples))
        self.played.append(chosen)
        generation = sum(chosen == other for other in self.played) - 1
        return output([item(example) for example in chosen], {e: self.score(e, generation) for e in chosen})


async def test_an_epoch_plays_as_many_examples_as_asked_for():
    """All generations play the same examples, and later epochs other ones."""
    builder = await ready(Plays(lambda _, generation: generation, examples_per_epoch=2))
    played = []
    for epoch in range(3):
        await builder.start_run("r", meta={"epoch": epoch})
        groups = (await builder.finalize("r", meta={"epoch": epoch})).trajectories
        assert [len(group) for group in groups] == [2, 2]
        played += [group[0].metadata["id"] for group in groups]
    assert sorted(played) == [f"e{n}" for n in range(6)]


async def test_groups_without_a_difference_are_refilled():
    """Further examples are played in their place; the flat ones stay in the records and in the collection."""
    builder = Plays(lambda example, generation: generation if example in {"e1", "e4"} else 1, examples_per_epoch=3)
    builder.trajectory_builder_config.max_refills = 1
    groups = (await collected(builder)).trajectories
    flat = [example for example in builder.played[0] if example not in {"e1", "e4"}]
    assert len(groups) == 3 + len(flat)
    assert not set(builder.played[-1]) & set(builder.played[0])
    assert len(builder.rollouts("r")) == 2 * len(groups)
    assert len((await collected(Plays(lambda *_: 0, examples_per_epoch=4, max_refills=5))).trajectories) == 6


async def test_a_builder_runs_in_a_unit_test_of_the_guide():
    """`run_eval` is a mock that returns a mock, and `initialize` is left out; there is then nothing to train on."""
    builder = ARTTrajectoryBuilder(ARTTrajectoryBuilderConfig(num_generations=2))
    builder.run_eval = AsyncMock(return_value=MagicMock())
    await builder.start_run("test-run")
    assert len(builder.evaluation_runs["test-run"]) == 2
    collection = await builder.finalize("test-run")
    assert (collection.run_id, collection.trajectories) == ("test-run", [])


@pytest.mark.parametrize(("generations", "groups"), [(1, [["a", "b"]]), (2, [["a", "a"], ["b", "b"]])])
async def test_one_generation_is_one_group_of_all_examples(generations, groups):
    """As in the toolkit, whose example trains that way; with more generations, each example is a group."""
    builder = ARTTrajectoryBuilder(ARTTrajectoryBuilderConfig(num_generations=generations))
    builder.run_eval = AsyncMock(return_value=output([item("a"), item("b")], {"a": 1.0, "b": 0.0}))
    await builder.initialize(FinetuneConfig(reward_function=RewardFunctionConfig(name="match")))
    await builder.start_run("r")
    found = (await builder.finalize("r")).trajectories
    assert [[trajectory.metadata["id"] for trajectory in group] for group in found] == groups
