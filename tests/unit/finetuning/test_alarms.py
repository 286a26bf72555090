import pytest

from fakes.run_records import epoch_record, epoch_records
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.alarms import EFFECTIVE_SAMPLES, TRUNCATED, alarms
from nat.finetuning.diagnosis import CLIPPED, ENTROPY
from nat.finetuning.metrics import EPOCH, prefixed
from nat.wire.metrics import UPDATE

CONFIG = GuardsConfig()


def names(epochs, config=CONFIG):
    return [alarm.name for alarm in alarms(epochs, config)]


def test_a_healthy_run_is_quiet():
    """No metric, no alarm; and none before the first epoch."""
    assert names([]) == []
    assert names(epoch_records([0.1] * 30)) == []


@pytest.mark.parametrize(
    ("metric", "value", "name", "text", "config"),
    [
        (
            "train/effective_sample_size",
            0.2,
            "effective_samples",
            "20% of the tokens (alarm below 30%)",
            {"min_effective_samples": 0.1},
        ),
        (
            "train/clip_fraction_high",
            0.4,
            "clip_fraction",
            "40% of the trained tokens",
            {"max_clip_fraction": 0.5},
        ),
        ("rollout/truncated", 0.25, "truncated", "25% of the rollouts hit a token limit", {"max_truncated": 0.3}),
    ],
)
def test_a_metric_beyond_its_level_warns(metric, value, name, text, config):
    """The warning has the number and the level, and the level can be set."""
    epochs = [epoch_record(metrics={metric: value})]
    (alarm,) = alarms(epochs, CONFIG)
    assert alarm.name == name
    assert text in alarm.text
    assert names(epochs, GuardsConfig(**config)) == []


def test_the_advice_on_cut_answers_holds_whatever_is_set():
    """An epoch does not tell whether truncated rollouts are left out already, so nobody is told to set that."""
    (alarm,) = alarms([epoch_record(metrics={TRUNCATED: 0.25})], CONFIG)
    assert "Raise the LLM's max_tokens. With mask_truncated_completions such rollouts are kept out" in alarm.text
    assert "or set" not in alarm.text


def test_a_job_that_trained_nothing_warns():
    """The backend left out all that was submitted; where nothing was submitted, it was not the backend."""
    metrics = {"train/trained_groups": 0.0}
    (alarm,) = alarms([epoch_record(metrics=metrics)], CONFIG)
    assert "none of the 24 groups (192 rollouts)" in alarm.text
    assert names([epoch_record(metrics=metrics, filtered_groups=0)]) == []


def test_only_the_last_epoch_counts_for_a_level():
    """An alarm that is over is not repeated."""
    assert (
        names(
            [
                epoch_record(0, metrics={"train/effective_sample_size": 0.1}),
                epoch_record(1, metrics={"train/effective_sample_size": 0.9}),
            ]
        )
        == []
    )


def test_many_equal_groups_warn_after_five_epochs():
    """One such epoch is chance; five in a row above the level are not."""
    epochs = epoch_records([0.5] * 5, groups_without_difference=20)
    assert names(epochs) == ["equal_groups"]
    assert names(epochs[1:]) == []
    assert names([*epochs, epoch_record(5, groups_without_difference=19)]) == []
    assert names(epochs, GuardsConfig(max_equal_groups=0.9)) == []


def test_a_fall_of_the_entropy_warns():
    """Half of it lost within twenty epochs is a collapse; the same fall over a longer time is learning."""

    def run(length):
        return [epoch_record(n, metrics={"train/entropy": 1.0 if n == 0 else 0.45}) for n in range(length)]

    assert names(run(21)) == ["entropy"]
    assert names(run(22)) == []
    assert names(run(21), GuardsConfig(max_entropy_drop=0.6)) == []
    assert "from 1.000 to 0.450" in alarms(run(2), CONFIG)[0].text


def test_clipping_at_both_ends_counts_together():
    """Low and high are reported apart; the level is for their sum."""
    assert names([epoch_record(metrics=dict.fromkeys(CLIPPED, 0.14))]) == []
    assert names([epoch_record(metrics=dict.fromkeys(CLIPPED, 0.16))]) == ["clip_fraction"]


def test_the_embedded_backend_reports_what_the_alarms_read():
    """A renamed metric would silence its alarm for good."""
    assert {*CLIPPED, EFFECTIVE_SAMPLES, ENTROPY, "train/trained_groups"} <= prefixed(dict.fromkeys(UPDATE, 0.0)).keys()
    assert TRUNCATED in EPOCH
