import pytest
from epoch_metrics import EPOCH

from fakes.run_records import rollout_record
from fakes.training_rows import row_of
from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory
from nat.finetuning.metrics import epoch_metrics, metrics_of_rollouts
from nat.runs.rollouts import LeftOutCause


def said(text, reward):
    return Trajectory(
        episode=[EpisodeItem(role=EpisodeItemRole.ASSISTANT, content=text, logprobs=[-0.1])], reward=reward
    )


def played(**fields):
    row = row_of([1, 2, 3], [None, -0.5, -0.5])
    return rollout_record(**{"num_calls": 2, "completion_tokens": 2, "rows": [row], "left_out": None, **fields})


def of_rewards(*groups):
    """The metrics of groups of pairs, an answer and its reward each."""
    made = [[said(*each) for each in group] for group in groups]
    found = epoch_metrics([], made, made, seconds={}, job={"grad_norm": 1, "time/update": 2.0})
    return {name.removeprefix("reward/"): value for name, value in found.items()}


def test_groups_without_a_difference_are_counted_by_their_reward():
    """Those that always lose and those that always win need different remedies; rounding is no difference."""
    found = of_rewards(
        [("a", 0.0), ("b", 0.0)], [("c", 1.0), ("c", 1.0)], [("e", 1.0), ("f", 0.0)], [("g", 0.3), ("h", 0.1 + 0.2)]
    )
    names = ("equal_groups", "equal_groups_lowest", "equal_groups_highest", "spread_in_group")
    assert [found[name] for name in names] == pytest.approx([0.75, 0.25, 0.25, 0.25])
    assert (found["train/grad_norm"], found["time/update"]) == (1, 2)
    assert "mean" not in of_rewards()
    assert metrics_of_rollouts([]) == {}


def test_scores_beside_the_reward_have_a_mean():
    """Of the rollouts that have one; each evaluator by its name."""
    scores = [{"judge": 1.0, "length": 4.0}, {"judge": 0.0}, {}]
    metrics = metrics_of_rollouts([played(scores_beside=own) for own in scores])
    assert {name: value for name, value in metrics.items() if "beside" in name} == {
        "reward/beside_judge": 0.5,
        "reward/beside_length": 4.0,
    }


def test_the_metrics_are_those_of_the_reference():
    """The reference page lists exactly the computed metrics; a small epoch is computed by hand."""
    row = row_of([1, 2, 3, 4], [None, None, -0.5, -0.5])
    whole = {"num_calls": 2, "prompt_tokens": 10, "completion_tokens": 4, "left_out": None, "rows": [row]}
    records = [
        rollout_record("a", 0, **whole, reward=0.0, policy_versions={"m@0": 1, "m@1": 1}),
        rollout_record(
            "a",
            1,
            **whole | {"prompt_tokens": 20, "completion_tokens": 8, "truncated": True},
            policy_versions={"m@0": 2},
        ),
        rollout_record("b", 0, **whole | {"left_out": LeftOutCause.NO_REWARD_DIFFERENCE}, broken_prefixes=1).model_copy(
            update={"broken_by": {"rewritten": 1}}
        ),
        rollout_record("b", 1, left_out=LeftOutCause.FAILED, reward=None, num_failed_calls=2),
    ]
    records[0] = records[0].model_copy(
        update={"untrainable_calls": {"f": {"top_p": 2}}, "untempered_calls": {"f": {"t": 1}}}
    )
    first, second = [said("x", 0.0), said("y", 1.0)], [said("z", 1.0)]
    first[0].metadata = {"calls_without_logprobs": 3}
    seconds = {"epoch": 9.0, "rollout": 4.0, "submit": 1.0, "train": 3.0, "overlapped": 2.0}
    seconds |= {"waiting_for_rollouts": 1.5, "waiting_for_weights": 1.0}
    staleness = {
        "drift/staleness": 0.5,
        "drift/staleness_max": 2.0,
        "drift/stale_rows": 1.0,
        "drift/dropped_groups": 1.0,
    }
    metrics = epoch_metrics(records, [first, second], [first], seconds=seconds, job={}, staleness=staleness)
    expected = {
        "reward/mean": 2 / 3,
        "reward/std": (2 / 9) ** 0.5,
        "reward/spread_in_group": 0.5,
        "reward/equal_groups": 0.5,
        "reward/equal_groups_lowest": 0.0,
        "reward/equal_groups_highest": 0.5,
        "rollout/failed": 0.25,
        "rollout/failed_calls": 0.5,
        "rollout/calls": 2.0,
        "rollout/conversations": 0.0,
        "rollout/prompt_tokens": 40 / 3,
        "rollout/completion_tokens": 16 / 3,
        "rollout/truncated": 1 / 3,
        "rollout/tokens_per_second": 4.0,
        "reward/compared": 1.0,
        "reward/example_variance": 0.5,
        "reward/repeats": 1.0,
        "reward/repeat_variance": 0.5,
        "reward/row_repeats": 1.0,
        "reward/row_repeat_variance": 0.5,
        "reward/length_correlation": 1.0,
        "reward/truncated_lowest": 0.0,
        "reward/whole_lowest": 0.5,
        "rollout/without_calls": 0.0,
        "rollout/cached": 0.0,
        "rollout/trained_tokens": 6 / 16,
        "drift/rows_per_rollout": 1.0,
        "drift/broken_prefixes": 1.0,
        "drift/broken_by_rewritten": 1.0,
        "drift/calls_without_logprobs": 3.0,
        "drift/untrainable_calls": 2.0,
        "drift/untempered_calls": 1.0,
        "drift/policy_versions": 2.0,
        **staleness,
        "train/submitted_groups": 1.0,
        "train/submitted_rollouts": 2.0,
        "train/submitted_rows": 2.0,
        "train/submitted_tokens": 4.0,
        "time/epoch": 9.0,
        "time/rollout": 4.0,
        "time/submit": 1.0,
        "time/train": 3.0,
        "time/overlapped": 2.0,
        "time/waiting_for_rollouts": 1.5,
        "time/waiting_for_weights": 1.0,
    }
    assert metrics == pytest.approx(expected)
    compared = of_comparisons([played(relative=True)])
    signs = {
        "cost/price",
        "rollout/tool_errors",
        "rollout/same_answer",
        "reward/same_answer",
        "rollout/lost_calls_<cause>",
        "reward/beside_<evaluator>",
    }
    every = {*expected, *compared, *signs}
    assert {name.replace("rewritten", "<cause>") for name in every} == set(EPOCH)


def of_comparisons(records):
    own = ("reward/relative", "reward/position", "reward/order", "cost/")
    return {name: value for name, value in metrics_of_rollouts(records).items() if name.startswith(own)}


def test_an_epoch_says_that_its_scores_compare_generations():
    """Their mean says nothing about progress."""
    assert of_comparisons([played(relative=True), played()]) == {"reward/relative": 1.0}
    assert of_comparisons([played()]) == {}
