"""What a run says of the side that waited for the other."""

import pytest

from fakes.run_records import epoch_record
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.report import diagnosis_text
from nat.finetuning.diagnosis.window import Window
from nat.runs.waiting import Waiting, waiting_of


def epoch(seconds: float, for_rollouts: float, for_weights: float | None = None) -> dict[str, float]:
    """The metrics of an epoch; the last ones of a run have nothing to wait for."""
    weights = {} if for_weights is None else {"time/waiting_for_weights": for_weights}
    return {"time/epoch": seconds, "time/waiting_for_rollouts": for_rollouts, **weights}


def test_waiting_is_a_share_of_the_time_of_the_overlapped_epochs():
    """Long epochs count for more; without `max_staleness` there is none."""
    assert waiting_of([epoch(8.0, 4.0, 1.0), epoch(2.0, 0.0)]) == Waiting(learner=0.4, rollouts=0.1)
    assert waiting_of([{"time/epoch": 9.0}]) is None
    assert waiting_of([]) is None


@pytest.mark.parametrize(
    ("learner", "rollouts", "words"),
    [
        (0.5, 0.1, "rollouts are the slower side: raise eval.general.max_concurrency"),
        (0.1, 0.5, "the learner is the slower side: more rollouts at a time or a higher max_staleness gain nothing"),
        (0.3, 0.3, "each side waits at times, so a higher max_staleness would let both go on"),
        (0.1, 0.1, "rollouts for new weights in 10%"),
    ],
)
def test_the_slower_side_is_named(learner, rollouts, words):
    """If one waits much; if both do, their durations vary."""
    assert words in str(Waiting(learner=learner, rollouts=rollouts))


def test_the_diagnosis_says_it():
    """As a fact beside the causes, since it costs time alone."""
    epochs = [epoch_record(number, metrics=epoch(8.0, 4.0, 0.0)) for number in range(2)]
    assert "\n\nWaiting: the learner waited for rollouts in 50% of the time" in diagnosis_text(
        diagnosis_of(Window(epochs))
    )
