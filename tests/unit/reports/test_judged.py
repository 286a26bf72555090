"""The numbers that conditions judge."""

from epoch_metrics import EPOCH
from update_metrics import OF_TEACHER, UPDATE

from fakes.run_records import epoch_record, epoch_records
from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.conditions import CONDITIONS, truncation
from nat.reports.judged import JUDGED, judged_numbers


def test_each_metric_and_condition_exists():
    """A metric is one that runs report, a condition one of the catalogue."""
    known = {*EPOCH, *(f"train/{name}" for name in (*UPDATE, *OF_TEACHER))}
    assert set(JUDGED) <= known
    assert {judge for _, judge in JUDGED.values() if judge} <= {condition.name for condition in CONDITIONS}


def test_the_healthy_range_is_that_of_the_runs_guards():
    """The mismatch of sampler and learner is judged by the backend itself."""
    epochs = [epoch_record(metrics={"rollout/truncated": 0.1, "train/logprob_diff_mean": 0.001})]
    truncated, mismatch = judged_numbers(epochs, GuardsConfig(max_truncated=0.25))
    assert (truncated.condition, truncated.healthy) == (
        "Answers are cut off",
        truncation.range_in(GuardsConfig(max_truncated=0.25)),
    )
    assert (mismatch.condition, mismatch.healthy) == ("", "below max_logprob_difference")


def test_what_is_out_of_range_is_marked_though_the_run_has_learned():
    """A page that shows no cause must not hide a number that is out of its range."""
    cut = {"rollout/truncated": 0.92, "reward/truncated_lowest": 1.0, "rollout/failed": 0.0}
    epochs = epoch_records([0.2, 0.2, 0.8, 0.8], metrics=cut)
    marked = {each.chart.summary.split()[0]: each.outside for each in judged_numbers(epochs, GuardsConfig())}
    assert marked == {"rollout/truncated": True, "rollout/failed": False}
    [loss] = judged_numbers(epoch_records([1.0], played=False, metrics={"train/loss": 0.5}), GuardsConfig())
    assert loss.chart.title == "Loss on the rows of the file"
