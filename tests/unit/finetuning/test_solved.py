import pytest

from fakes.run_records import epoch_record, epoch_records, validation_record
from nat.finetuning.solved import solved

AT_TOP = {"min_reward": 1.0, "groups_without_difference": 24, "filtered_groups": 0}


def equal_epochs(first: int = 3, reward: float = 1.0, **changes):
    fields = AT_TOP | {"min_reward": reward, "max_reward": reward} | changes
    return [epoch_record(first + n, reward, **fields) for n in range(3)]


def test_rewards_that_rose_to_the_top_are_success():
    """The sentence names the epochs, the highest reward, and the lowest one, which shows that the score can differ."""
    text = solved([*epoch_records([0.2, 0.5, 0.9]), *equal_epochs()], [], last=3)
    assert text is not None
    assert text.startswith("Solved: every training rollout of epochs 4 to 6 has the highest reward of the run, 1 ")
    assert "(the lowest was 0)" in text


@pytest.mark.parametrize(
    "epochs",
    [
        pytest.param(equal_epochs(0), id="the same score from the first epoch on"),
        pytest.param(
            [epoch_record(0, filtered_groups=0, groups_without_difference=24), *equal_epochs(1)],
            id="nothing was ever trained",
        ),
        pytest.param([*epoch_records([0.2, 0.5]), *equal_epochs(reward=0.0)], id="all at the bottom"),
        pytest.param([*epoch_records([0.2, 0.5]), *equal_epochs(reward=0.4)], id="in between"),
        pytest.param(
            [*epoch_records([0.5]), *equal_epochs(1)[:2], epoch_record(3, min_reward=0.9, max_reward=1.0)],
            id="the last epochs are not all at the top",
        ),
        pytest.param([*epoch_records([0.5]), *equal_epochs(metrics={"reward/relative": 1.0})], id="relative scores"),
        pytest.param([*epoch_records([0.5]), *equal_epochs(played=False)], id="rewards of a file"),
        pytest.param(epoch_records([0.5, 0.5]), id="too few epochs"),
    ],
)
def test_what_is_no_success(epochs):
    """A broken evaluator, a collapsed reward, and rewards that measure no progress are never called solved."""
    assert solved(epochs, [], last=3) is None


def test_a_top_that_may_not_be_the_highest_is_not_called_solved():
    """Nobody knows the range of an evaluator, so the sentence says what it would mean if it can give more."""
    text = solved([*epoch_records([0.1], max_reward=0.5), *equal_epochs(1, reward=0.5)], [], last=3)
    assert text is not None
    assert "Solved" not in text
    assert "If the evaluator can give more than 0.5" in text


def test_held_out_scores_count_as_rewards_that_were_seen():
    """They show that the score can differ where a phase begins solved, and that more can be had."""
    texts = [epoch_record(0, 0.0, played=False, min_reward=0.0, max_reward=0.0)]
    epochs = [*texts, *equal_epochs(1)]
    assert solved(epochs, [], last=3) is None
    assert solved(epochs, [validation_record(scores={"x": 0.2})], last=3) is not None
    assert solved([*texts, *equal_epochs(1, reward=0.5)], [validation_record(scores={"x": 0.9})], last=3) is None
