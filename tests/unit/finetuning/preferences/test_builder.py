import asyncio
import json

import pytest

from fakes.ttc_steps import candidate, step
from nat.data_models.evaluate_runtime import EvaluationRunOutput, RolloutFacts
from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem
from nat.data_models.finetuning import DPOItem, FinetuneConfig, RewardFunctionConfig
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import NoPreferencePairs
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
        rollouts=[RolloutFacts(item_id=str(i.id), generation=0, seed=11, seconds=0.5) for i in items],
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


async def test_pairs_are_grouped_by_example():
    """One group per example with pairs; each trajectory has one DPOItem and names run and epoch."""
    two_turns = (*TURN, candidate(0.5, "c", turn="t1"), candidate(0.0, "d", turn="t1"))
    found = await collected(Scripted(output(item("x", *two_turns), item("y", *TURN), item("z", TURN[0]))))
    assert [[t.metadata["turn_id"] for t in group] for group in found.trajectories] == [["t0", "t1"], ["t0"]]
    first = found.trajectories[0][0]
    assert first.episode == [DPOItem(prompt="a prompt", chosen_response="a", rejected_response="b")]
    assert (found.run_id, first.reward, first.metadata["run_id"], first.metadata["epoch"]) == ("r", 1.0, "r", 3)


async def test_the_reward_can_be_the_better_score():
    """`reward_from_score_diff: false`."""
    turn = (candidate(0.75, "a"), candidate(0.5, "b"))
    for by_difference, reward in ((True, 0.25), (False, 0.75)):
        found = await collected(Scripted(output(item("x", *turn)), reward_from_score_diff=by_difference))
        assert found.trajectories[0][0].reward == reward


async def test_one_pass_per_id():
    """A second start under an id is refused while the first goes on; after `finalize` the id is free."""
    builder = await ready(Scripted(output(item("x", *TURN))))
    await builder.start_run("r")
    with pytest.raises(ValueError, match="Run r is already in progress"):
        await builder.start_run("r")
    await builder.finalize("r")
    await builder.start_run("r")
    await builder.finalize("r")
    assert builder.passes == 2
    with pytest.raises(ValueError, match="No evaluation run found for run_id: nobody"):
        await builder.finalize("nobody")


@pytest.mark.parametrize("error", [RuntimeError("the server is gone"), asyncio.CancelledError()])
async def test_an_id_is_free_after_a_failed_pass(error):
    """The toolkit keeps the task of a failed pass, so that its id cannot start again."""
    builder = await ready(Scripted(error))
    await builder.start_run("r")
    with pytest.raises(type(error)):
        await builder.finalize("r")
    builder.prepared = output(item("x", *TURN))
    await builder.start_run("r")
    assert (await builder.finalize("r")).trajectories


async def test_abandon_ends_the_pass():
    """A run that stops between the two calls leaves no task behind; an unknown id is no error."""
    builder = await ready(Scripted())
    await builder.start_run("r")
    task = builder.evaluation_runs["r"]
    await asyncio.sleep(0)
    await builder.abandon("r")
    await builder.abandon("r")
    assert (task.cancelled(), builder.evaluation_runs) == (True, {})


async def test_metrics_count_everything():
    """What was found, and every cause of a skip, 0 included."""
    builder = Scripted(
        output(
            item("x", *TURN, candidate(float("nan"), "c"), step("CUSTOM_END")),
            item("y", candidate(0.5, "a"), candidate(0.5, "b"), candidate(1.0, "c", turn="t1")),
            item("z", *TURN),
            failed=["z"],
        )
    )
    await collected(builder)
    assert builder.metrics("r") == {
        "total_examples": 3,
        "total_turns": 3,
        "total_candidates": 5,
        "total_pairs": 1,
        "total_trajectories": 1,
        "failed_rollouts": 1,
        "answers_removed_from_prompts": 0,
        "skipped_not_ttc": 1,
        "skipped_never_ended": 0,
        "skipped_not_target": 0,
        "skipped_bad_data": 0,
        "skipped_no_turn": 0,
        "skipped_no_score": 0,
        "skipped_bad_score": 1,
        "skipped_bad_prompt": 0,
        "skipped_bad_response": 0,
        "skipped_single_candidate": 1,
        "skipped_different_prompts": 0,
        "skipped_equal_responses": 0,
        "skipped_tie": 1,
        "skipped_score_diff": 0,
        "skipped_turn_cap": 0,
        "skipped_example_cap": 0,
    }
    assert builder.metrics("another") == {}


async def test_every_skip_is_explained_in_a_line(caplog):
    """A likely mistake is a warning; what scorers and limits do is an information. Each has count, place and remedy."""
    caplog.set_level("INFO")
    turn = (candidate(1.0, "a"), candidate(0.95, "b"), candidate(0.0, "c"), candidate(float("inf"), "d"))
    await collected(Scripted(output(item("x", *turn), item("y"), failed=["y"]), min_score_diff=0.1))
    place = "example x: turn t0, candidate 3: the score is inf, not a finite number"
    remedy = "Look for a division by zero in the scorer, and push a finite number."
    pair = "example x, turn t0, candidates 0 and 1: scores 1 and 0.95"
    assert [(record.levelname, record.message) for record in caplog.records[1:-1]] == [
        ("WARNING", f"Preference pairs: 1 x a candidate's score is not a finite number; first: {place}. {remedy}"),
        ("INFO", f"Preference pairs: 1 x two candidates of a turn differ by less than min_score_diff; first: {pair}"),
        ("WARNING", "Preference pairs: 1 of 2 rollouts failed: 1 x the workflow raised an error: ValueError: boom"),
    ]


async def test_single_candidates_may_be_meant(caplog):
    """`require_multiple_candidates: false` neither counts nor warns of them."""
    single = item("x", *TURN, candidate(1.0, "c", turn="t1"))
    for required, count in ((True, 1), (False, 0)):
        caplog.clear()
        builder = Scripted(output(single), require_multiple_candidates=required)
        await collected(builder)
        assert builder.metrics("r")["skipped_single_candidate"] == count
        assert ("a turn has a single candidate" in caplog.text) is required


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


async def test_no_evaluator_is_needed():
    """Without a reward function rollouts have no score, and pairs have theirs."""
    builder = Scripted(output(item("x", *TURN)))
    assert len((await collected(builder)).trajectories) == 1
    assert builder.rollouts("r")[0].reward is None


async def test_other_functions_can_be_left_out():
    """`finetuning.target_functions` leaves out what the opponent's function pushed."""
    own = [candidate(s, f"own {s}", function="player") for s in (0.0, 1.0)]
    other = [candidate(s, f"other {s}", turn="t1", function="opponent") for s in (0.0, 1.0)]
    whole = output(item("x", *own, *other))
    assert len((await collected(Scripted(whole))).trajectories[0]) == 2
    [[pair]] = (await collected(Scripted(whole), target_functions=["player"])).trajectories
    assert pair.episode[0].chosen_response == "own 1.0"


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


async def test_single_candidates_that_are_meant_still_explain_that_there_is_no_pair():
    """The option silences the warning, not the error."""
    text = await failure(Scripted(output(item("x", TURN[0])), require_multiple_candidates=False))
    assert "1 x a turn has a single candidate" in text


@pytest.mark.parametrize(
    ("whole", "options", "seen", "remedy"),
    [
        (
            output(item("x", *(candidate(s, f"{s}", name="dpo_move") for s in (0, 1)))),
            {"ttc_step_name": "dpo_moves"},
            "no step is named 'dpo_moves' (ttc_step_name); TTC_END steps seen: dpo_move (2)",
            "Set ttc_step_name to the name of your candidates. Did you mean 'dpo_move'?",
        ),
        (
            output(item("x", step("LLM_END", name="gpt"))),
            {},
            "no step is named 'dpo_candidate_move' (ttc_step_name); TTC_END steps seen: none",
            "Push each candidate as IntermediateStepPayload(event_type=TTC_END, name='dpo_candidate_move', ",
        ),
        (
            output(item("x", step("CUSTOM_END"))),
            {},
            "1 x a step of that name is no TTC_END step; first: example x: CUSTOM_END",
            "Push candidates as IntermediateStepType.TTC_END",
        ),
        (output(), {}, "0 candidates in 0 turns of 0 rollouts", "The dataset has no rows."),
        (
            output(item("x"), failed=["x"]),
            {},
            "1 of 1 rollouts failed: 1 x the workflow raised an error: ValueError: boom",
            "`nat run` plays one input",
        ),
    ],
    ids=["another name", "no steps", "another type", "no rows", "all failed"],
)
async def test_an_error_says_what_to_do(whole, options, seen, remedy):
    """Whatever went wrong, the message has what was seen and one remedy."""
    text = await failure(Scripted(whole, **options))
    assert seen in text
    assert remedy in text.partition("→")[2]


def test_progress_is_a_line_per_pass(tmp_path):
    """Settings and counts are written to the default folder, or to the one that is named."""
    builder, name = Scripted(), "dpo_trajectory_builder_r.jsonl"
    builder.log_progress("r", {"total_pairs": 7})
    builder.log_progress("r", {"total_pairs": 8}, str(tmp_path / "own"))
    [line] = (tmp_path / ".tmp/nat/finetuning/dpo_trajectory_builder" / name).read_text().splitlines()
    written, own = json.loads(line), tmp_path / "own" / name
    assert (written["run_id"], written["total_pairs"]) == ("r", 7)
    assert written["config"]["ttc_step_name"] == "dpo_candidate_move"
    assert json.loads(own.read_text())["total_pairs"] == 8
    assert own.stat().st_mode & 0o777 == 0o600, "like all files of a run"


async def test_a_collection_outside_of_a_run_writes_nothing(tmp_path):
    """The counts belong to a run's folder; without a run they are in `metrics`."""
    await collected(Scripted(output(item("x", *TURN))))
    assert list(tmp_path.iterdir()) == []
