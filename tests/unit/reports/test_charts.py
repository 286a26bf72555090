"""Charts say in words and in a table what they draw."""

from fakes.run_records import epoch_record, epoch_records, validation_record
from nat.reports.charts import histogram_chart, metric_chart, reward_chart, spread, two_curves
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


def test_held_out_points_are_of_the_same_examples():
    """A checkpoint that crashes on what it did not know is no better; the label says how failures count."""
    validations = [validation_record(0, {"x": 0.0, "y": 1.0}), validation_record(1, {"x": None, "y": 1.0})]
    chart = reward_chart([], validations)
    assert list(chart.series[0].values) == [0.5, 0.5]
    assert "failed ones as the lowest" in chart.series[0].label


def test_scores_beside_the_reward_have_a_curve():
    """Each evaluator by its name, in the sentence and in the table, too."""
    epochs = epoch_records([0.2, 0.4], scores_beside={"judge": 0.7})
    chart = reward_chart(epochs, [])
    assert [(each.label, list(each.values)) for each in chart.series][1:] == [("by judge, not the reward", [0.7, 0.7])]
    assert "score by judge, not the reward, 0.700 → 0.700" in chart.summary
    assert (chart.header[-1], chart.rows[0][-1]) == ("by judge", "0.700")


def test_without_results_there_is_no_chart():
    """Each kind of chart says so by None."""
    assert reward_chart([], []) is None
    assert metric_chart("Entropy", "train/entropy", epoch_records([0.1])) is None
    assert histogram_chart([]) is None
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


def test_two_runs_share_their_epochs():
    """The shorter one ends earlier."""
    chart = two_curves({"A": [0.1, 0.2], "B": [0.3]})
    assert list(chart.series[1].values) == [0.3, None]
    assert chart.rows[1] == ("2", "0.200", "")


def test_a_histogram_names_its_highest_bin():
    """Its table has every bin."""
    chart = histogram_chart([Bin(0, 0, 3), Bin(1, 1, 5)])
    assert chart.summary == "8 rollouts with a reward; most, 5, have 1."
    assert list(chart.rows) == [("0", "3"), ("1", "5")]
