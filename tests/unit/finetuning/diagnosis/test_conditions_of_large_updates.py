import pytest

from fakes.run_records import epoch_records
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.conditions_of_large_updates import GRADIENT, KL, WEIGHTS, updates_too_far
from nat.finetuning.diagnosis.window import Window

SHORTENED = {
    "train/kept_share": 0.2,
    "train/shortenings": 1.0,
    "train/learning_rate": 1e-4,
    "train/usual_learning_rate": 1e-4,
}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({KL: 0.5}, "rate_too_high"),
        (SHORTENED, "rate_too_high"),
        ({"train/effective_sample_size": 0.2}, "few_effective_samples"),
        ({"train/clip_fraction_low": 0.2, "train/clip_fraction_high": 0.2}, "many_clipped"),
    ],
    ids=str,
)
def test_each_number_has_a_healthy_range(metrics, expected):
    """Beyond the range the cause comes first; a reward that rises excuses it."""
    flat, learned = (Window(epoch_records(rewards, metrics=metrics)) for rewards in ([0.2] * 6, [0.2, 0.2, 0.8, 0.8]))
    assert diagnosis_of(flat, ended=False).findings[0].cause == expected
    assert diagnosis_of(learned, ended=False).healthy


@pytest.mark.parametrize(
    ("rewards", "metrics", "found"),
    [
        ([0.4, 0.5, 0.6], [{}, {KL: 0.5}, {}], []),
        ([0.4, 0.5, 0.6], [{}, {GRADIENT: 60.0}, {}], []),
        ([0.4, 0.5, 0.6], [{}, {KL: 0.5}, {KL: 0.5}], [1, 2]),
        ([0.4, 0.5, 0.6], [{}, {KL: 0.5, WEIGHTS: 0.05}, {}], [1]),
        ([0.4, 0.5, 0.1], [{}, {KL: 0.5}, {}], [1]),
        ([0.0, 0.0, 0.0], [{}, {KL: 9.1, WEIGHTS: 0.1}, {}], []),
    ],
)
def test_one_outlier_of_an_estimate_does_not_count(rewards, metrics, found):
    """KL divergence and gradient norm have outliers: one of them counts if the weights or the reward agree."""
    epochs = epoch_records(rewards)
    for epoch, own in zip(epochs, metrics, strict=True):
        epoch.metrics.update({KL: 0.03, GRADIENT: 1.4, WEIGHTS: 0.0015} | own)
    assert [epoch.epoch for epoch in updates_too_far(Window(epochs))] == found


def test_an_update_that_went_too_far_precedes_what_it_broke():
    """Afterwards every answer is cut off and scores 0, so neither the limit nor the examples are to blame."""
    metrics = {"rollout/truncated": 0.9, "reward/truncated_lowest": 1.0}
    equal = {"groups_without_difference": 22, "examples": {"a": 0.0}}
    epochs = epoch_records([0.2] * 10, metrics=metrics, **equal)
    epochs[1].metrics.update({"train/approx_kl": 6.0, "train/update_ratio": 0.5, "train/learning_rate": 0.1})
    [first, *_] = diagnosis_of(Window(epochs)).findings
    assert first.cause == "rate_too_high"
    assert first.seen.startswith("the update of epoch 2 moved the policy too far: KL divergence 6 per token")
    assert "try 0.0004" in first.remedy
