import pytest

from fakes.run_records import rollout_record
from fakes.training_rows import row_of
from nat.data_models.evaluator import ComparisonFacts
from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory
from nat.data_models.llm_usage import LLMUsage
from nat.finetuning.metrics import (
    EPOCH,
    comparison_metrics,
    drift_metrics,
    epoch_metrics,
    failure_metrics,
    metrics_of_rollouts,
    prefixed,
    reward_metrics,
    rollout_metrics,
)
from nat.runs.rollouts import LeftOutCause


def said(text, reward):
    return Trajectory(
        episode=[EpisodeItem(role=EpisodeItemRole.ASSISTANT, content=text, logprobs=[-0.1])], reward=reward
    )


def played(**fields):
    row = row_of([1, 2, 3], [None, -0.5, -0.5])
    return rollout_record(**{"num_calls": 2, "completion_tokens": 2, "rows": [row], "left_out": None, **fields})


def test_flat_groups_are_counted_by_their_reward():
    """Groups that always lose and groups that always win need different remedies."""
    metrics = reward_metrics(
        [
            [said("a", 0.0), said("b", 0.0)],
            [said("c", 1.0), said("d", 1.0)],
            [said("e", 1.0), said("f", 0.0)],
            [said("g", 0.5), said("h", 0.5)],
        ]
    )
    assert metrics["reward/equal_groups"] == 0.75
    assert metrics["reward/equal_groups_lowest"] == 0.25
    assert metrics["reward/equal_groups_highest"] == 0.25
    assert metrics["reward/spread_in_group"] == 0.25


def test_groups_that_differ_by_rounding_are_flat():
    """Rewards of 0.3 and 0.1 + 0.2 are equal, also as the lowest and the highest."""
    metrics = reward_metrics([[said("a", 0.3), said("b", 0.1 + 0.2)], [said("c", 1.0), said("d", 0.3)]])
    assert (metrics["reward/equal_groups"], metrics["reward/equal_groups_lowest"]) == (0.5, 0.5)
    metrics = reward_metrics([[said("a", 0.3), said("b", 0.1 + 0.2)]])
    assert (metrics["reward/equal_groups_lowest"], metrics["reward/equal_groups_highest"]) == (1.0, 1.0)
    assert "reward/top_duplicates" not in metrics


def test_a_zero_token_count_is_unknown():
    """Every prompt has tokens, so a count of zero is left out of the mean."""
    metrics = rollout_metrics([played(prompt_tokens=0), played(prompt_tokens=8)])
    assert metrics["rollout/prompt_tokens"] == 8.0
    assert "rollout/prompt_tokens" not in rollout_metrics([played()])


def test_copies_among_the_best_are_counted():
    """Many identical top rollouts suggest reward hacking."""
    assert reward_metrics([[said("same", 1.0), said("same", 1.0), said("no", 0.0)]])["reward/top_duplicates"] == 0.5


def test_an_empty_epoch_has_no_metrics():
    """Without rollouts there are no means, rather than zeros."""
    assert reward_metrics([]) == {}
    assert rollout_metrics([]) == failure_metrics([]) == {}


def test_failed_attempts_are_counted_over_all_rollouts():
    """Rollouts without an answer count, too; failed attempts are no calls, and a retry does not hide them."""
    failed = rollout_record(left_out=LeftOutCause.FAILED, reward=None, num_failed_calls=3)
    assert failure_metrics([played(num_failed_calls=1), failed]) == {"rollout/failed": 0.5, "rollout/failed_calls": 2.0}


def test_drift_counts_inexact_tokens():
    """The metrics count rows per rollout, broken prefixes and policy versions."""
    records = [played(policy_versions={"m@1": 2, "m@2": 1}, broken_prefixes=1), played(policy_versions={"m@2": 3})]
    metrics = drift_metrics(records, [])
    assert (metrics["drift/rows_per_rollout"], metrics["drift/broken_prefixes"]) == (1.0, 1.0)
    assert metrics["drift/policy_versions"] == 2.0


def test_broken_prefixes_are_counted_by_cause():
    """A cause without broken prefixes has no metric."""
    records = [
        played(broken_prefixes=3, broken_by={"template_rewrites": 2, "retokenized": 1}),
        played(broken_prefixes=1, broken_by={"template_rewrites": 1}),
    ]
    found = {name: n for name, n in drift_metrics(records, []).items() if "broken_by" in name}
    assert found == {"drift/broken_by_template_rewrites": 3.0, "drift/broken_by_retokenized": 1.0}


def test_the_backends_metrics_get_a_prefix_unless_they_have_one():
    """`grad_norm` becomes `train/grad_norm`; `time/update` stays."""
    assert prefixed({"grad_norm": 1, "time/update": 2.0}) == {"train/grad_norm": 1.0, "time/update": 2.0}


def test_an_epoch_has_its_batch_its_time_and_its_speed():
    """Trained tokens are the sampled ones; tokens per second are over the rollouts' time."""
    metrics = epoch_metrics(
        [played(), played(truncated=True)],
        [[said("a", 0.0), said("b", 1.0)]],
        [[said("a", 0.0), said("b", 1.0)]],
        seconds={"rollout": 2.0, "epoch": 3.0},
        job={"loss": 0.5},
    )
    submitted = [metrics[f"train/submitted_{what}"] for what in ("groups", "rollouts", "rows", "tokens")]
    assert submitted == [1.0, 2.0, 2.0, 4.0]
    assert (metrics["time/rollout"], metrics["rollout/tokens_per_second"]) == (2.0, 2.0)
    assert (metrics["rollout/truncated"], metrics["train/loss"]) == (0.5, 0.5)


def test_scores_beside_the_reward_have_a_mean_and_a_spread():
    """Of the rollouts that have one; each evaluator by its name."""
    scores = [{"judge": 1.0, "length": 4.0}, {"judge": 0.0}, {}]
    metrics = metrics_of_rollouts([played(scores_beside=own) for own in scores])
    assert {name: value for name, value in metrics.items() if "beside" in name} == {
        "reward/beside_judge": 0.5,
        "reward/std_beside_judge": 0.5,
        "reward/beside_length": 4.0,
        "reward/std_beside_length": 0.0,
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
        "reward/top_duplicates": 0.0,
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
        "rollout/tokens_better": 8.0,
        "rollout/tokens_worse": 4.0,
        "rollout/equal_outputs": 1.0,
        "rollout/without_calls": 0.0,
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
    compared = comparison_metrics([played(comparison=ComparisonFacts(pairs=1))])
    signs = {
        "cost/price",
        "rollout/tool_errors",
        "rollout/lost_calls_<cause>",
        "reward/beside_<evaluator>",
        "reward/std_beside_<evaluator>",
    }
    every = {*expected, *compared, *signs}
    assert {name.replace("rewritten", "<cause>") for name in every} == set(EPOCH)


def test_an_epoch_adds_up_what_its_comparisons_took():
    """Calls and tokens are sums; bias and flips are shares of the pairs that were judged in both orders."""
    facts = ComparisonFacts(pairs=28, for_first=14, flipped=7)
    took = {"judge": LLMUsage(calls=2, prompt_tokens=100, completion_tokens=10) * (1 / 8)}
    records = [played(comparison=facts.shared_by(8), judge_usage=took) for _ in range(8)]
    records.append(played(comparison=ComparisonFacts(reused=1)))
    assert comparison_metrics(records) == pytest.approx(
        {
            "reward/relative": 1.0,
            "reward/position_bias": 0.25,
            "reward/order_flips": 0.25,
            "reward/order_pairs": 28,
            "cost/judge_calls": 2,
            "cost/judge_prompt_tokens": 100,
            "cost/judge_completion_tokens": 10,
            "cost/judge_reused": 1,
        }
    )
    assert comparison_metrics([played()]) == {}
