"""What a forecast says of several cards."""

from nat.sizing.forecast import Card, TrainingForecast, misfit_text
from nat.sizing.memory import PredictedMemory


def forecast(needed: int) -> TrainingForecast:
    """Two cards of 80 GB, of which the first has room."""
    return TrainingForecast(
        device="cuda",
        dtype="bfloat16",
        num_parameters=1,
        learning_rate=1e-5,
        optimizer_steps=1,
        memory=[PredictedMemory(title="all weights", parts={"weights": 10**9}, total=10**9)],
        available=80 * 10**9,
        capacity=80 * 10**9,
        place="cuda:0",
        cards={"cuda:1": Card(needs=needed, room=80 * 10**9)},
    )


def test_training_fits_only_if_each_card_does():
    """The card that is too small is named, with what it has and what it would need."""
    assert forecast(79 * 10**9).fits
    assert not forecast(81 * 10**9).fits
    expected = "training all weights takes 81.0 GB on cuda:1, by prediction, which has 80.0 GB"
    assert misfit_text(forecast(81 * 10**9)) == expected


def test_the_first_card_is_one_of_all():
    """With what its memory takes; a device that does not tell its size is taken to have room."""
    assert forecast(1).all_cards["cuda:0"] == Card(needs=10**9, room=80 * 10**9)
    assert forecast(1).model_copy(update={"capacity": None}).all_cards["cuda:0"].room == 10**9
