from math import exp, sqrt
from random import Random

import pytest

from fakes.run_records import epoch_record, epoch_records
from nat.data_models.finetuning import GuardsConfig
from nat.errors import RewardCollapse
from nat.finetuning.alarms import alarms, kept
from nat.finetuning.diagnosis.conditions_of_large_updates import CLIPPED, EFFECTIVE_SAMPLES
from nat.finetuning.diagnosis.conditions_of_rollouts import TRUNCATED
from nat.finetuning.diagnosis.conditions_of_updates import ENTROPY, ENTROPY_EPOCHS
from nat.finetuning.guards import check_reward
from nat.finetuning.metrics import EPOCH, prefixed
from nat.runs.records import EpochRecord
from nat.wire.metrics import UPDATE

CONFIG = GuardsConfig()


def names(epochs, config=CONFIG):
    return [alarm.cause for alarm in alarms(epochs, config)]


def test_a_healthy_run_has_no_alarms():
    """Without a metric, or before the first epoch, there is no alarm."""
    assert names([]) == []
    assert names(epoch_records([0.1] * 30)) == []


@pytest.mark.parametrize(
    ("metric", "value", "name", "text", "config"),
    [
        (
            "train/effective_sample_size",
            0.2,
            "few_effective_samples",
            "20% of the tokens (healthy: above 30%)",
            {"min_effective_samples": 0.1},
        ),
        (
            "train/clip_fraction_high",
            0.4,
            "many_clipped",
            "40% of the trained tokens were clipped",
            {"max_clip_fraction": 0.5},
        ),
        ("rollout/truncated", 0.25, "truncation", "25% of the rollouts hit a token limit", {"max_truncated": 0.3}),
    ],
)
def test_a_metric_beyond_its_level_warns(metric, value, name, text, config):
    """The warning has the number and the level; the level is configurable."""
    epochs = [epoch_record(metrics={metric: value})]
    (alarm,) = alarms(epochs, CONFIG)
    assert alarm.cause == name
    assert text in str(alarm)
    assert names(epochs, GuardsConfig(**config)) == []


def test_a_judge_that_looks_at_the_order_warns():
    """The bias is the mean of the last epochs by their pairs, and counts once there are enough of these."""

    def judged(pairs, bias):
        return epoch_record(metrics={"reward/order_pairs": pairs, "reward/position_bias": bias})

    assert names([judged(90.0, 1.0)], CONFIG) == []
    assert names([judged(56.0, 0.2), judged(56.0, 0.3)], CONFIG) == []
    (alarm,) = alarms([judged(56.0, 0.2), judged(56.0, 0.6)], CONFIG)
    assert alarm.cause == "position_bias"
    assert "the judge prefers the earlier of two answers by 40% (112 pairs" in str(alarm)
    assert "both_orders to 1" in str(alarm)
    assert "prefers the later" in alarms([judged(100.0, -0.5)], CONFIG)[0].seen
    assert names([judged(100.0, -0.5)], GuardsConfig(max_position_bias=0.5)) == []


def test_the_remedy_for_truncated_answers_needs_no_other_setting():
    """An epoch does not show whether truncated rollouts are already masked, so the remedy does not mention it."""
    (alarm,) = alarms([epoch_record(metrics={TRUNCATED: 0.25})], CONFIG)
    assert "Raise the LLM's max_tokens. With mask_truncated_completions such rollouts are kept out" in str(alarm)
    assert "or set" not in str(alarm)


def test_a_job_that_trained_nothing_warns():
    """A job that left out all submitted groups is a warning; an epoch without groups that differ is not."""
    metrics = {"train/trained_groups": 0.0}
    (alarm,) = alarms([epoch_record(metrics=metrics)], CONFIG)
    assert "the backend did not train 100% of the " in str(alarm)
    assert names([epoch_record(metrics=metrics, filtered_groups=0)]) == []
    assert names([epoch_record(metrics=metrics, groups_without_difference=24)]) == []


def test_only_the_last_epoch_counts_for_a_level():
    """An alarm of an earlier epoch is not repeated."""
    assert (
        names(
            [
                epoch_record(0, metrics={"train/effective_sample_size": 0.1}),
                epoch_record(1, metrics={"train/effective_sample_size": 0.9}),
            ]
        )
        == []
    )


@pytest.mark.parametrize(
    ("score", "expected"), [(0.0, "too_hard"), (1.0, "too_easy"), (0.5, "few_generations")], ids=["low", "high", "half"]
)
def test_many_equal_groups_warn_after_five_epochs(score, expected):
    """Five epochs above the level are a warning; a single one is chance. What the examples score is the reason."""
    examples = {"a": score}
    epochs = epoch_records([0.5] * 5, groups_without_difference=20, examples=examples)
    assert names(epochs) == [expected]
    assert names(epochs[1:]) == []
    assert names([*epochs, epoch_record(5, groups_without_difference=10, examples=examples)]) == []
    assert names(epochs, GuardsConfig(max_equal_groups=0.9)) == []


def test_equal_groups_are_no_alarm_where_they_are_compared_with_others():
    """An algorithm that compares rewards of the whole batch learns from groups that differ from each other."""
    epochs = epoch_records([0.5] * 5, groups_without_difference=24, examples={"a": 0.0, "b": 1.0})
    assert alarms(epochs, CONFIG, "batch") == []
    assert names(epochs) == ["too_hard"]


def test_a_fall_of_the_entropy_warns():
    """Losing half of the entropy within twenty epochs is a warning; the same over a longer time is not."""

    def run(length):
        return [epoch_record(n, metrics={"train/entropy": 1.0 if n == 0 else 0.45}) for n in range(length)]

    assert names(run(21)) == ["entropy_collapse"]
    assert names(run(22)) == []
    assert names(run(21), GuardsConfig(max_entropy_drop=0.6)) == []
    assert "from 1.000 to 0.450" in alarms(run(2), CONFIG)[0].seen


@pytest.mark.parametrize(
    ("reward", "expected"), [(0.3, ["entropy_collapse"]), (0.45, ["entropy_collapse"]), (0.65, [])]
)
def test_entropy_may_fall_where_the_reward_rises(reward, expected):
    """A model that learns is surer of its answers: a gain that is more than chance is no alarm."""
    epochs = [
        epoch_record(0, 0.3, metrics={"train/entropy": 1.0, "reward/std": 0.5}),
        epoch_record(1, reward, metrics={"train/entropy": 0.2, "reward/std": 0.5}),
    ]
    assert names(epochs) == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_entropy_of_a_run_that_learns_falls_without_an_alarm(seed):
    """Neither a single low reward nor a single low entropy is one: means are compared, by their standard error."""
    rng = Random(seed)
    epochs = []
    for number in range(60):
        mean = 0.9 - 0.5 * exp(-number / 20)
        spread = sqrt(mean * (1 - mean))
        metrics = {
            "train/entropy": (0.3 + 0.5 * exp(-number / 15)) * exp(rng.gauss(0, 0.08)),
            "reward/std": spread,
            "reward/example_variance": 0.6 * spread**2,
        }
        reward = rng.gauss(mean, spread * sqrt(0.4 / 24 + 0.6 / 192))
        epochs.append(epoch_record(number, reward, metrics=metrics, examples={f"{number}": reward}))
        assert names(kept(epochs, CONFIG)) == []


def of_teacher(*values):
    return [epoch_record(n, metrics={"train/teacher_kl": value}) for n, value in enumerate(values)]


def test_a_divergence_from_the_teacher_that_does_not_fall_warns():
    """The last five epochs are compared with the first five; near the teacher, noise is no alarm."""
    assert names(of_teacher(*[1.0] * 9)) == []
    assert names(of_teacher(*[1.0] * 10)) == ["far_from_teacher"]
    assert names(of_teacher(*[1.0] * 5, *[0.9] * 5)) == []
    assert names(of_teacher(*[0.01] * 5, *[0.03] * 5)) == []
    assert (
        "1.000 nats per token in the first 5 epochs and 1.100"
        in alarms(of_teacher(*[1.0] * 5, *[1.1] * 5), CONFIG)[0].seen
    )


def test_a_teacher_that_is_the_model_itself_is_named():
    """From the first epoch on, since there is nothing to learn."""
    assert "it is the same model" in alarms(of_teacher(-2e-6), CONFIG)[0].seen
    assert names(of_teacher(0.2, 2e-6)) == []


def test_clipping_at_both_ends_counts_together():
    """The level applies to the sum of low and high clipping."""
    assert names([epoch_record(metrics=dict.fromkeys(CLIPPED, 0.14))]) == []
    assert names([epoch_record(metrics=dict.fromkeys(CLIPPED, 0.16))]) == ["many_clipped"]


def test_the_embedded_backend_reports_the_metrics_of_the_alarms():
    """A renamed metric would silence its alarm."""
    assert {*CLIPPED, EFFECTIVE_SAMPLES, ENTROPY, "train/trained_groups"} <= prefixed(dict.fromkeys(UPDATE, 0.0)).keys()
    assert TRUNCATED in EPOCH


def filled(rewards, **limits) -> list[EpochRecord]:
    found = []
    for epoch, reward in enumerate(rewards):
        record = epoch_record(epoch, reward, min_reward=reward - 0.1, max_reward=reward + 0.1)
        found = kept([*found, record], GuardsConfig(**limits))
    return found


def test_a_short_run_is_kept_whole():
    """All epochs within the window are kept in order."""
    assert [record.epoch for record in filled([0.5] * 12)] == list(range(12))


def test_a_long_run_keeps_first_last_and_extremes():
    """The epochs with the lowest and the highest reward are kept."""
    rewards = [0.5] * 1000
    rewards[300], rewards[400] = 0.2, 0.8
    epochs = [record.epoch for record in filled(rewards)]
    assert epochs == [0, 1, 2, 300, 400, *range(1000 - ENTROPY_EPOCHS - 1, 1000)]


def test_the_window_covers_the_guards():
    """The window grows with the number of epochs that the guards read."""
    assert len(filled([0.5] * 1000, epochs_without_signal=90)) >= 90
    assert len(filled([0.5] * 1000, collapse_epochs=50)) >= 100


@pytest.mark.parametrize("length", [6, 60, 600])
def test_a_collapse_is_found_in_runs_of_any_length(length):
    """The first epochs are kept, so a collapse is found in a run of any length."""
    rewards = [0.8] * (length - 3) + [0.1] * 3
    with pytest.raises(RewardCollapse, match=r"from 0\.800 in epochs? \d+ to"):
        check_reward(filled(rewards), GuardsConfig())


def test_a_solved_run_raises_no_alarm():
    """A model that gets the highest reward need not explore, and its groups are equal because it has learned."""
    equal = {"groups_without_difference": 24, "min_reward": 1.0}
    learned = [
        epoch_record(0, 0.2, metrics={"train/entropy": 1.0}),
        *(epoch_record(n, 1.0, metrics={"train/entropy": 0.9}, **equal) for n in range(1, 28)),
        *(epoch_record(n, 1.0, metrics={"train/entropy": 0.1}, **equal) for n in range(28, 31)),
    ]
    assert names(learned) == []
    low = {"avg_reward": 0.2, "min_reward": 0.2, "max_reward": 0.2, "examples": {"a": 0.0}}
    stuck = [epoch.model_copy(update=low) for epoch in learned[1:]]
    assert names([learned[0], *stuck]) == ["too_hard", "entropy_collapse"]
    assert names(stuck) == ["too_hard", "entropy_collapse"]
