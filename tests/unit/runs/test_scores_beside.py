"""The scores beside the reward, by evaluator and epoch."""

from fakes.run_records import epoch_record
from nat.runs.scores_beside import scores_beside


def test_scores_are_found_by_the_names_of_their_metrics():
    """Each evaluator has the epochs that it scored, counted from one; spreads are no scores."""
    epochs = [
        epoch_record(0, metrics={"reward/beside_judge": 0.5, "reward/std_beside_judge": 0.1}),
        epoch_record(1, metrics={"reward/beside_judge": 0.25, "reward/beside_length": 7.0, "reward/mean": 1.0}),
    ]
    assert scores_beside(epochs) == {"judge": {1: 0.5, 2: 0.25}, "length": {2: 7.0}}
