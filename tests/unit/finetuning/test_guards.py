from collections import Counter
from contextlib import nullcontext

import pytest
from pydantic import ValidationError

from fakes.run_records import epoch_record, epoch_records, rollout_record
from nat.data_models.finetuning import GuardsConfig, TrainingJobStatus, TrainingStatusEnum
from nat.data_models.rollout_failure import RAISED, FailureCount, counted
from nat.errors import (
    NoLearningSignal,
    NoTrajectories,
    RewardCollapse,
    TooManyFailures,
    TrainingFailed,
    UntrainableSampling,
)
from nat.finetuning.guards import (
    check_failures,
    check_job,
    check_reward,
    check_signal,
    check_trained,
    check_trajectories,
)
from nat.runs.rollouts import LeftOutCause, RolloutTally, tally

CONFIG = GuardsConfig()


def no_trajectories(counts, *, target_functions=("<workflow>",), target_model=None) -> str:
    with pytest.raises(NoTrajectories) as caught:
        check_trajectories(counts, target_functions=target_functions, target_model=target_model)
    return str(caught.value)


def all_left_out(cause, count=8, **changes) -> RolloutTally:
    return tally(rollout_record(str(n), left_out=cause, **changes) for n in range(count))


@pytest.mark.parametrize(
    ("cause", "fields", "target", "told"),
    [
        (LeftOutCause.NO_LOGPROBS, {}, {}, ["8 x the server sent no logprobs", "builder.get_llm"]),
        (LeftOutCause.NO_SCORE, {"reward": None}, {}, ["8 x the evaluator gave no score", "Fix the evaluator"]),
        (LeftOutCause.NO_TARGET_FUNCTION, {}, {}, ["LLM calls came from: nowhere", "Take every client from builder"]),
        (
            LeftOutCause.NO_TARGET_FUNCTION,
            {"functions": {"play": 3, "judge": 1}},
            {"target_functions": ["plya"]},
            ["target_functions: plya; LLM calls came from: play (24 calls)", "Set finetuning.target_functions"],
        ),
        (
            LeftOutCause.NO_TARGET_MODEL,
            {"functions": {"play": 1}, "models": {"qwen": 1}},
            {"target_model": "qwem"},
            ["LLM calls went to: qwen (8 calls)", "Did you mean 'qwen'?", "target_model to the LLM that they call"],
        ),
    ],
)
def test_what_was_left_out_has_its_remedy(cause, fields, target, told):
    """A misspelt target is shown beside what was seen."""
    text = no_trajectories(all_left_out(cause, **fields), **target)
    assert all(each in text for each in told), text


def test_more_failures_than_allowed_end_the_run():
    """`max_failure_rate` is a share of the started rollouts; the error has the seen and the allowed rate."""
    causes = Counter({LeftOutCause.FAILED: 50, LeftOutCause.NO_SCORE: 7, LeftOutCause.NO_REWARD_DIFFERENCE: 90})
    failures = counted([(LeftOutCause.NO_SCORE, None)] * 7 + [(LeftOutCause.FAILED, "KeyError: 'x'")] * 50)
    counts = RolloutTally(150, causes, failures)
    check_failures(counts, max_failure_rate=0.38)
    with pytest.raises(TooManyFailures) as caught:
        check_failures(counts, max_failure_rate=0.37)
    text = str(caught.value)
    assert "57 of 150 rollouts failed (38%; finetuning.max_failure_rate allows 37%)" in text
    assert "50 x the workflow raised an error: KeyError: 'x'; 7 x the evaluator gave no score" in text
    assert "nat run" in text


def dead_epochs(count, **changes):
    fields = {"groups_without_difference": 24, "filtered_groups": 0, "min_reward": 0.0, "max_reward": 0.0}
    return epoch_records([0.0] * count, **(fields | changes))


@pytest.mark.parametrize("patience", [1, 4])
def test_groups_without_a_difference_end_the_run_after_some_epochs(patience):
    """`epochs_without_signal` is a number of consecutive epochs; one with a signal resets it."""
    config = GuardsConfig(epochs_without_signal=patience)
    check_signal(dead_epochs(patience - 1), config)
    check_signal([*dead_epochs(patience - 1), epoch_record(patience - 1, groups_without_difference=23)], config)
    with pytest.raises(NoLearningSignal) as caught:
        check_signal([epoch_record(99), *dead_epochs(patience)], config)
    assert f"rewards are all equal: {', '.join(['24 of 24'] * patience)}; none was submitted; " in str(caught.value)


def test_a_rare_success_gets_enough_rollouts():
    """Three epochs of 128 rollouts miss a success in 200 in 15 of 100 runs; six hundred rollouts miss it in five."""
    examples = {str(n): 0.0 for n in range(16)}
    few = {"num_trajectories": 128, "num_groups": 16, "groups_without_difference": 16, "examples": examples}
    once = epoch_record(0, 1 / 128, **few | {"groups_without_difference": 15}, filtered_groups=1)
    for epochs in ([], [once]):
        check_signal([*epochs, *dead_epochs(4, **few)], GuardsConfig())
        with pytest.raises(NoLearningSignal, match="imitate these first"):
            check_signal([*epochs, *dead_epochs(5, **few)], GuardsConfig())
    tiny = few | {"num_trajectories": 16, "num_groups": 2, "groups_without_difference": 2}
    check_signal(dead_epochs(9, **tiny), GuardsConfig())
    for epochs, config in ((10, GuardsConfig()), (3, GuardsConfig(epochs_without_signal=3))):
        with pytest.raises(NoLearningSignal):
            check_signal(dead_epochs(epochs, **tiny), config)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        pytest.param({}, "rollouts has the score 0", id="always the same reward"),
        pytest.param({"max_reward": 1.0}, "a more varied model", id="examples differ, generations do not"),
    ],
)
def test_the_remedy_depends_on_the_rewards(changes, remedy):
    """Equal rewards have several causes, which the numbers distinguish."""
    with pytest.raises(NoLearningSignal) as caught:
        check_signal(dead_epochs(3, **changes), CONFIG)
    assert remedy in str(caught.value)


def test_a_run_whose_jobs_all_trained_nothing_is_an_error():
    """The guard needs no recorded epoch; one job that trained, or reports nothing, is enough to pass."""

    def job(**metrics):
        done = TrainingStatusEnum.COMPLETED
        return TrainingJobStatus(run_id="r", backend="b", status=done, metadata={"metrics": metrics})

    with pytest.raises(NoLearningSignal, match="none of the groups that it was given in 2 jobs"):
        check_trained([job(trained_groups=0), job(trained_groups=0.0)])
    check_trained([job(trained_groups=0), job(trained_groups=1)])
    check_trained([job(trained_groups=0), job(loss=1)])
    check_trained([])


def test_a_collapsed_reward_ends_the_run():
    """A reward far below the first epochs, beyond chance, ends the run; the error has both numbers."""
    with pytest.raises(RewardCollapse) as caught:
        check_reward(epoch_records([0.5, 0.6, 0.7, 0.8, 0.1, 0.1, 0.1]), CONFIG)
    text = str(caught.value)
    assert "fell from 0.600 in epochs 1 to 3 to 0.100 in epochs 5 to 7" in text
    assert "Most often the learning rate is too high" in text


def test_failures_that_began_with_training_are_a_fall():
    """The rollouts that are left may have the reward of before; what failed from the start proves nothing."""
    fine, failing = {"num_rollouts": 192}, {"num_rollouts": 192, "num_trajectories": 48, "left_out": {RAISED: 144}}
    failing["failures"] = [FailureCount(cause=RAISED, count=144, error="ValueError: no JSON")]
    epochs = [epoch_record(n, **(fine if n < 3 else failing)) for n in range(6)]
    with pytest.raises(RewardCollapse) as caught:
        check_reward(epochs, CONFIG)
    text = str(caught.value)
    assert "fell from 0.500 in epochs 1 to 3 to 0.125 in epochs 4 to 6" in text
    assert "432 failed rollouts count as it: 144 x the workflow raised an error: ValueError: no JSON" in text
    check_reward([epoch_record(n, **failing) for n in range(6)], CONFIG)
    check_reward(epochs, GuardsConfig(collapse_share=0))


@pytest.mark.parametrize("status", TrainingStatusEnum)
def test_a_job_without_new_weights_is_an_error(status):
    """A failed or canceled job of any backend is not a success; one that runs or is completed is no error."""
    job = TrainingJobStatus(run_id="r1", backend="art", status=status, message="HTTP 500")
    fails = status in {TrainingStatusEnum.FAILED, TrainingStatusEnum.CANCELED}
    wanted = pytest.raises(TrainingFailed, match=rf"job r1 on art {status.value}: HTTP 500") if fails else nullcontext()
    with wanted:
        check_job(job)


@pytest.mark.parametrize(
    "wrong", [{"epochs_without_signal": 0}, {"collapse_share": 1.0}, {"max_truncated": 1.1}, {"max_truncation": 0.1}]
)
def test_thresholds_out_of_bounds_and_unknown_ones_are_errors(wrong):
    """An impossible or misspelt threshold would silently turn its guard off."""
    with pytest.raises(ValidationError):
        GuardsConfig(**wrong)


def test_a_greedy_agent_is_an_error_with_its_functions():
    """The error shows the sampling of each function and both remedies."""
    calls = {"play": {"temperature=0": 2}, "plan": {"temperature=0, top_p=0.9": 1}}
    counts = all_left_out(LeftOutCause.UNTRAINABLE_SAMPLING, untrainable_calls=calls)
    with pytest.raises(UntrainableSampling) as caught:
        check_trajectories(counts, target_functions=["<workflow>"], target_model=None)
    text = str(caught.value)
    assert "the agent never samples from the trained distribution: 8 of 8 rollouts" in text
    assert "16 x play: temperature=0\n" in text
    assert "8 x plan: temperature=0, top_p=0.9\n" in text
    assert "finetuning.sampling_in_training: {temperature: 1.0}" in text
