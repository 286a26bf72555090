"""What a run says of the updates that `max_kl` shortened."""

from fakes.run_records import epoch_record
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.report import diagnosis_text
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.summary import summarise
from nat.runs.shortened import ShortenedUpdates, shortened_updates

RATE = 2**-11


def update(share: float, attempts: int) -> dict[str, float]:
    """The metrics of an update at the usual rate, of which a share was kept."""
    rates = {"train/learning_rate": RATE * share, "train/usual_learning_rate": RATE}
    return {"train/kept_share": share, "train/shortenings": attempts, **rates}


SHORTENED = [update(1.0, 0), update(0.5, 1), update(0.25, 2), {}]
"""Four epochs, the last of which trained nothing."""
SENTENCE = (
    "2 of 3 updates in 3 attempts, to keep within max_kl; share kept 0.38 on average, 0.25 at the least; "
    "accepted learning rate 0.00018 on average, usual 0.00049"
)


def test_only_shortened_updates_count_in_the_means():
    """Updates that kept their whole way are counted, and change neither the share nor the rate."""
    found = shortened_updates(SHORTENED)
    assert found == ShortenedUpdates(
        updates=2,
        of=3,
        attempts=3,
        mean_share=0.375,
        least_share=0.25,
        learning_rate=0.375 * RATE,
        usual_learning_rate=RATE,
    )
    assert str(found) == SENTENCE


def test_one_attempt_is_one():
    """The number agrees with its word."""
    assert str(shortened_updates([update(0.5, 1)])).startswith("1 of 1 updates in 1 attempt, to keep within max_kl")


def test_nothing_is_said_without_a_shortened_update():
    """A run of whole updates has no such record, and neither has a backend that reports no share."""
    assert shortened_updates([update(1.0, 0)] * 3) is None
    assert shortened_updates([{"train/learning_rate": RATE}]) is None
    whole = [epoch_record(epoch, metrics=update(1.0, 0)) for epoch in range(4)]
    assert "Shortened" not in diagnosis_text(diagnosis_of(Window(whole)))


def test_summary_and_diagnosis_have_the_same_numbers():
    """Both take them from the metrics of the epochs, whether or not there is something wrong."""
    epochs = [epoch_record(epoch, 0.2 * epoch, metrics=own) for epoch, own in enumerate(SHORTENED)]
    record = summarise("r", None, [], played=epochs, validations=[], epochs=4, seconds=9.0, model=None)
    assert str(record.shortened) == SENTENCE
    assert f"\n\nShortened: {SENTENCE}." in diagnosis_text(diagnosis_of(Window(epochs)))
