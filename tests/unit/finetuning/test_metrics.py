from fakes.run_records import rollout_record
from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory
from nat.finetuning.metrics import (
    drift_metrics,
    epoch_metrics,
    failure_metrics,
    prefixed,
    reward_metrics,
    rollout_metrics,
)
from nat.runs.records import LeftOutCause
from nat.wire.training import TrainingRow


def said(text, reward):
    return Trajectory(
        episode=[EpisodeItem(role=EpisodeItemRole.ASSISTANT, content=text, logprobs=[-0.1])], reward=reward
    )


def played(**fields):
    row = TrainingRow(token_ids=[1, 2, 3], logprobs=[None, -0.5, -0.5])
    return rollout_record(**{"num_calls": 2, "completion_tokens": 2, "rows": [row], "left_out": None, **fields})


def test_flat_groups_are_told_apart_by_what_they_reached():
    """All-lost and all-won groups ask for different remedies."""
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


def test_copies_among_the_best_are_counted():
    """Many identical top rollouts are a sign of reward hacking."""
    assert reward_metrics([[said("same", 1.0), said("same", 1.0), said("no", 0.0)]])["reward/top_duplicates"] == 0.5


def test_nothing_has_no_metrics():
    """An epoch without rollouts has no means, rather than zeros."""
    assert reward_metrics([]) == {}
    assert rollout_metrics([]) == failure_metrics([]) == {}


def test_what_went_wrong_is_counted_over_all_rollouts():
    """Also over those that got no answer at all: attempts that failed are no calls, and a retry hides none of them."""
    failed = rollout_record(left_out=LeftOutCause.FAILED, reward=None, num_failed_calls=3)
    assert failure_metrics([played(num_failed_calls=1), failed]) == {"rollout/failed": 0.5, "rollout/failed_calls": 2.0}


def test_drift_counts_what_is_not_exact():
    """Rows per rollout, broken prefixes and the policies that played."""
    records = [played(policy_version="m@1", broken_prefixes=1), played(policy_version="m@2")]
    metrics = drift_metrics(records, [])
    assert (metrics["drift/rows_per_rollout"], metrics["drift/broken_prefixes"]) == (1.0, 1.0)
    assert metrics["drift/policy_versions"] == 2.0


def test_broken_prefixes_are_counted_by_cause():
    """Causes that broke nothing are no metrics."""
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
    assert (metrics["train/tokens"], metrics["train/rows"], metrics["train/groups"]) == (4.0, 2.0, 1.0)
    assert (metrics["time/rollout"], metrics["rollout/tokens_per_second"]) == (2.0, 2.0)
    assert (metrics["rollout/truncated"], metrics["train/loss"]) == (0.5, 0.5)
