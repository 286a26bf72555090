"""Charts say in words and in a table what they draw."""

from datetime import timedelta

from fakes.run_records import NOON, epoch_record, epoch_records, job_record, validation_record
from nat.reports.charts import histogram_chart, metric_chart, reward_chart, spread, time_chart, two_curves
from nat.runs.outcomes import Bin


def test_rewards_stand_at_their_epochs():
    """Held-out scores begin at 0, before training, and have intervals; training begins at 1."""
    chart = reward_chart(epoch_records([0.2, 0.4]), [validation_record(0), validation_record(2, {"x": 1.0, "y": 1.0})])
    assert list(chart.x) == [0, 1, 2]
    training, held_out = chart.series
    assert list(training.values) == [None, 0.2, 0.4]
    assert list(held_out.values) == [0.5, None, 1.0]
    assert (held_out.low[0], held_out.high[0]) == (0.0, 1.0)
    assert chart.summary == "Training reward 0.200 → 0.400; held-out score 0.500 → 1.000."
    assert chart.rows[1] == ("1", "0.200", "", "")
    assert chart.y_range == (0.0, 1.0)


def test_scores_beside_the_reward_have_a_curve():
    """Each evaluator by its name, in the sentence and in the table, too."""
    epochs = epoch_records([0.2, 0.4], metrics={"reward/beside_judge": 0.7})
    chart = reward_chart(epochs, [])
    assert [(each.label, list(each.values)) for each in chart.series][1:] == [("by judge, not the reward", [0.7, 0.7])]
    assert "score by judge, not the reward, 0.700 → 0.700" in chart.summary
    assert (chart.header[-1], chart.rows[0][-1]) == ("by judge", "0.700")


def test_without_results_there_is_no_chart():
    """Each kind of chart says so by None."""
    assert reward_chart([], []) is None
    assert metric_chart("Entropy", "train/entropy", epoch_records([0.1])) is None
    assert histogram_chart([]) is None
    assert time_chart([], [], [], None) is None
    assert two_curves({"A": [], "B": []}) is None


def test_numbers_that_are_none_are_left_out():
    """A metric may be infinite, or missing in some epochs."""
    metrics = [{"train/entropy": 1.0}, {}, {"train/entropy": float("nan")}, {"train/entropy": 0.5}]
    epochs = [epoch_record(n, metrics=own) for n, own in enumerate(metrics)]
    chart = metric_chart("Entropy", "train/entropy", epochs)
    assert list(chart.x) == [1, 4]
    assert chart.summary == "train/entropy 1 → 0.5."


def test_long_runs_are_spread():
    """The first and the last stay."""
    assert len(reward_chart(epoch_records([0.5] * 5000), []).x) == 1000
    assert list(spread(range(100), 4)) == [0, 33, 66, 99]


def test_time_is_taken_from_jobs_and_stages():
    """Rollouts end where the job is handed over; what lies in no lane is waiting, and overlap counts once."""
    at = NOON + timedelta(seconds=100)
    job = job_record(submitted_at=at, finished_at=at + timedelta(seconds=20))
    stages = {"time/rollout": 60.0, "time/submit": 2.0, "time/train": 20.0}
    epoch = epoch_record(timestamp=at + timedelta(seconds=21), metrics=stages)
    held_out = validation_record(1).model_copy(update={"timestamp": at + timedelta(seconds=40), "seconds": 10.0})
    chart = time_chart([epoch], [held_out], [job], NOON)
    spans = {each.label: list(zip(each.low, each.high, strict=True)) for each in chart.series}
    assert spans == {
        "rollouts and scoring": [(38.0, 98.0)],
        "hand-over": [(98.0, 100.0)],
        "updates": [(100.0, 120.0)],
        "validations": [(130.0, 140.0)],
    }
    assert "10% of 102.0 s is in no lane" in chart.summary


def overlapping():
    """Two epochs of 10 s of rollouts; the second one was played beside the 6 s of the first one's update."""
    jobs = [
        job_record(f"job-{n}", epoch=n, policy_version=f"me@{n + 1}", submitted_at=at(10 * (n + 1))) for n in range(2)
    ]
    jobs = [job.model_copy(update={"finished_at": job.submitted_at + timedelta(seconds=6)}) for job in jobs]
    stages = {"time/rollout": 8.0, "time/overlapped": 6.0}
    first = epoch_record(0, timestamp=at(16), metrics=stages, policy_versions={"me@0": 8})
    versions = {"me@0": 6, "me@1": 2}
    second = epoch_record(1, timestamp=at(26), metrics={"time/rollout": 8.0}, policy_versions=versions)
    return [first, second], jobs


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def test_the_weights_of_rollouts_stand_on_them():
    """Those that an update has replaced by then are a series of their own, until the update ends; then there is a wait.

    Without named weights, as in journals of earlier releases, there is one series.
    """
    epochs, jobs = overlapping()
    chart = time_chart(epochs, [], jobs, NOON)
    spans = {each.label: list(zip(each.low, each.high, each.notes, strict=True)) for each in chart.series}
    lane = "rollouts and scoring"
    assert spans[lane] == [(2.0, 10.0, "@0"), (16.0, 18.0, "@1")]
    assert spans[f"{lane}, weights of 1 update ago"] == [(10.0, 16.0, "@0")]
    assert spans["updates"] == [(10.0, 16.0, "→@1"), (20.0, 26.0, "→@2")]
    rows = {name: seconds for name, seconds, _ in chart.rows}
    assert (rows[lane], rows[f"{lane}, weights of 1 update ago"]) == ("16.0", "6.0")
    assert list(chart.lanes) == ["updates", "hand-over", lane]
    unnamed = [epoch.model_copy(update={"policy_versions": {}}) for epoch in epochs]
    assert [each.label for each in time_chart(unnamed, [], jobs, NOON).series] == ["updates", "hand-over", lane]


def test_rollouts_of_two_epochs_ahead_stand_where_they_were_played():
    """One after the other beside the first update, whose weights they came from, however long they waited then."""
    jobs = [
        job_record(f"job-{n}", epoch=n, policy_version=f"me@{n + 1}", submitted_at=at(10 + 20 * n)) for n in range(3)
    ]
    jobs = [job.model_copy(update={"finished_at": job.submitted_at + timedelta(seconds=20)}) for job in jobs]
    stages = {"time/rollout": 8.0, "time/overlapped": 16.0}
    epochs = [epoch_record(n, timestamp=at(30 + 20 * n), metrics=stages, policy_versions={"me@0": 8}) for n in range(3)]
    spans = {
        each.label: list(zip(each.low, each.high, strict=True)) for each in time_chart(epochs, [], jobs, NOON).series
    }
    lane = "rollouts and scoring"
    assert spans[lane] == [(2.0, 10.0)]
    assert spans[f"{lane}, weights of 1 update ago"] == [(10.0, 18.0)]
    assert spans[f"{lane}, weights of 2 updates ago"] == [(18.0, 26.0)]


def test_scoring_has_a_lane():
    """That of rollouts and of held-out examples; it lies within the time of those."""
    begun = NOON.timestamp()
    epoch = epoch_record(timestamp=at(20), metrics={"time/rollout": 10.0}, scoring=[(begun + 15, begun + 20)])
    held_out = validation_record(1).model_copy(update={"timestamp": at(30), "seconds": 5.0})
    held_out = held_out.model_copy(update={"scoring": [(begun + 28, begun + 30)]})
    (lane,) = [each for each in time_chart([epoch], [held_out], [], NOON).series if each.label == "scoring"]
    assert list(zip(lane.low, lane.high, strict=True)) == [(15.0, 20.0), (28.0, 30.0)]


def test_two_runs_share_their_epochs():
    """The shorter one ends earlier."""
    chart = two_curves({"A": [0.1, 0.2], "B": [0.3]})
    assert list(chart.series[1].values) == [0.3, None]
    assert chart.rows[1] == ("2", "0.200", "")


def test_a_histogram_names_its_highest_bin():
    """Its table has every bin."""
    chart = histogram_chart([Bin(0, 0, 3, closed=True), Bin(1, 1, 5, closed=True)])
    assert chart.summary == "8 rollouts with a reward; most, 5, have 1."
    assert list(chart.rows) == [("0", "3"), ("1", "5")]
