import asyncio

import pytest

from fakes.made_spans import rollout
from fakes.ttc_steps import candidate, step
from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.data_models.finetuning import DPOItem, FinetuneConfig, RewardFunctionConfig
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import NoPreferencePairs
from nat.finetuning.preferences.builder import collect, metrics_of
from nat.plugins.customizer.dpo.config import DPOTrajectoryBuilderConfig
from nat.plugins.customizer.dpo.trajectory_builder import DPOTrajectoryBuilder
from nat.runs.rollouts import LeftOutCause


class Scripted(DPOTrajectoryBuilder):
    """A builder whose pass returns a prepared output, raises it, or never ends."""

    def __init__(self, prepared=None, **options):
        super().__init__(DPOTrajectoryBuilderConfig(**options))
        self.prepared = prepared
        self.passes = 0

    async def run_eval(self):
        self.passes += 1
        await asyncio.sleep(3600 if self.prepared is None else 0)
        if isinstance(self.prepared, BaseException):
            raise self.prepared
        return self.prepared


def item(name, *trajectory):
    return EvalInputItem(id=name, input_obj=name, expected_output_obj="", output_obj="o", trajectory=list(trajectory))


def output(*items, failed=(), scores=None):
    results = [EvalOutputItem(id=name, score=score, reasoning="") for name, score in (scores or {}).items()]
    return EvaluationRunOutput(
        eval_input=EvalInput(eval_input_items=list(items)),
        evaluation_results=[("match", EvalOutput(average_score=None, eval_output_items=results))] if scores else [],
        failures=[RolloutFailure(item_id=name, kind="raised", type="ValueError", message="boom") for name in failed],
        rollouts=[rollout(str(i.id), seed=11, steps=i.trajectory, seconds=0.5) for i in items],
    )


TURN = (candidate(1.0, "a"), candidate(0.0, "b"))


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


async def ready(builder, **fields):
    await builder.initialize(FinetuneConfig(**fields))
    return builder


async def collected(builder, **fields):
    await ready(builder, **fields)
    await builder.start_run("r", meta={"epoch": 3})
    return await builder.finalize("r", meta={"epoch": 3, "trainer_config": {}})


async def failure(builder, **fields):
    with pytest.raises(NoPreferencePairs) as caught:
        await collected(builder, **fields)
    return str(caught.value)


async def test_a_test_of_a_plug_in_may_leave_initialize_out():
    """As the guide tests a builder: `run_eval` is replaced, and nobody calls `initialize`."""
    builder = Scripted(output(item("x", *TURN)))
    await builder.start_run("test-run")
    (group,) = (await builder.finalize("test-run")).trajectories
    assert group[0].episode[0].chosen_response == "a"


async def test_pairs_are_grouped_by_example():
    """One group per example with pairs; each trajectory has one DPOItem and names run and epoch."""
    two_turns = (*TURN, candidate(0.5, "c", turn="t1"), candidate(0.0, "d", turn="t1"))
    found = await collected(Scripted(output(item("x", *two_turns), item("y", *TURN), item("z", TURN[0]))))
    assert [[t.metadata["turn_id"] for t in group] for group in found.trajectories] == [["t0", "t1"], ["t0"]]
    first = found.trajectories[0][0]
    assert first.episode == [DPOItem(prompt="a prompt", chosen_response="a", rejected_response="b")]
    assert (found.run_id, first.reward, first.metadata["run_id"], first.metadata["epoch"]) == ("r", 1.0, "r", 3)


def test_metrics_count_everything():
    """What was found, and every cause of a skip, 0 included."""
    whole = output(
        item("x", *TURN, candidate(float("nan"), "c"), step("CUSTOM_END")),
        item("y", candidate(0.5, "a"), candidate(0.5, "b"), candidate(1.0, "c", turn="t1")),
        item("z", *TURN),
        failed=["z"],
    )
    found = metrics_of(collect(whole, DPOTrajectoryBuilderConfig(), FinetuneConfig()))
    assert {name: count for name, count in found.items() if count} == {
        "total_examples": 3,
        "total_turns": 3,
        "total_candidates": 5,
        "total_pairs": 1,
        "total_trajectories": 1,
        "failed_rollouts": 1,
        "skipped_bad_score": 1,
        "skipped_single_candidate": 1,
        "skipped_tie": 1,
    }
    assert {"skipped_score_diff", "skipped_turn_cap", "skipped_different_prompts"} <= found.keys()
    single = collect(whole, DPOTrajectoryBuilderConfig(require_multiple_candidates=False), FinetuneConfig())
    assert metrics_of(single)["skipped_single_candidate"] == 0


async def test_the_record_of_a_rollout_says_what_became_of_it():
    """A failed rollout, one without a pair, and one with a pair and the evaluator's score."""
    whole = output(
        item("x", *TURN), item("y", TURN[0]), item("z"), failed=["z"], scores={"x": 0.5, "y": float("nan"), "z": None}
    )
    builder = Scripted(whole)
    await collected(builder, reward_function=RewardFunctionConfig(name="match"))
    x, y, z = builder.rollouts("r")
    assert (x.example_id, x.reward, x.left_out, x.seed) == ("x", 0.5, None, 11)
    assert (y.reward, y.left_out, y.error) == (
        None,
        LeftOutCause.NO_PAIR,
        "1 x a turn has a single candidate; first: example y, turn t0",
    )
    assert (z.left_out, z.error) == (LeftOutCause.FAILED, "ValueError: boom")
    assert builder.rollouts("another") == ()


async def test_no_pair_is_an_error_with_the_causes():
    """The most frequent cause comes first and has the remedy."""
    ties = [candidate(0.5, text, turn=f"t{n}") for n in range(3) for text in ("a", "b")]
    text = await failure(Scripted(output(item("x", *ties), item("y", TURN[0]), item("z"), failed=["z"])))
    assert text == (
        "no preference pair to train on: 7 candidates in 4 turns of 2 rollouts\n"
        "  3 x two candidates of a turn have equal scores; first: "
        "example x, turn t0, candidates 0 and 1: scores 0.5 and 0.5\n"
        "  1 x a turn has a single candidate; first: example y, turn t0\n"
        "  1 of 3 rollouts failed: 1 x the workflow raised an error: ValueError: boom\n"
        "  → A tie is no preference: let the scorer distinguish the candidates, or sample more of them."
    )
