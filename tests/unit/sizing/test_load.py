"""The load of an epoch, and its time."""

import pytest

from fakes.forecasts import SPEED
from nat.sizing.load import ASSUMED_ANSWER, RolloutLoad, assumed_load, different_tokens, epoch_seconds

LOAD = RolloutLoad(calls=3, row_tokens=100, sampled_tokens=40, longest_row=150, basis="in a run")


def test_an_epoch_has_so_many_tokens():
    """Chats are as many as play at the same time, and a step has its share of the epoch."""
    workload = LOAD.workload(64, at_a_time=8)
    assert (workload.chats, workload.row_tokens, workload.epoch_tokens) == (8, 150, 6400)
    assert workload.step_tokens == 3200
    assert workload.sampled_share == 0.4
    assert LOAD.workload(2, at_a_time=8).chats == 2


def test_before_the_first_run_the_longest_example_is_the_prompt():
    """Four characters are a token, and an answer has `max_tokens`."""
    load = assumed_load(401, {"m": 20})
    assert (load.assumed, load.calls, load.row_tokens, load.sampled_tokens) == (True, 1, 121, 20)
    assert "an answer of the 20 tokens of llms.m.max_tokens" in load.basis
    unset = assumed_load(0, {"m": None})
    assert unset.sampled_tokens == ASSUMED_ANSWER
    assert "an answer of 256 tokens (llms.m.max_tokens is not set)" in unset.basis


def test_each_of_several_trained_models_is_called_once():
    """With its own limit."""
    load = assumed_load(400, {"plan": 8, "work": 20})
    assert (load.calls, load.row_tokens, load.sampled_tokens, load.longest_row) == (2, 228, 28, 120)
    assert "one call of each of plan, work per rollout" in load.basis


def test_equal_beginnings_count_once():
    """The learner computes a prompt once for all answers to it, and likewise for answers that begin alike."""
    assert different_tokens([[1, 2, 3, 4], [1, 2, 3], [1, 2, 5]]) == 5
    assert different_tokens([[7, 8], [9]]) == 3
    assert different_tokens([]) == 0


@pytest.mark.parametrize(
    ("longest", "then", "now", "holds"),
    [
        (12, None, 24, True),
        (12, None, 12, True),
        (12, None, 11, False),
        (12, 24, None, True),
        (None, 8, 16, False),
        (None, 8, 8, True),
    ],
)
def test_a_load_holds_with_a_limit_that_no_answer_meets(longest, then, now, holds):
    """Answers that ended by themselves are as long with another limit; those that were cut off are not."""
    load = LOAD.model_copy(update={"longest_answer": longest, "max_tokens": then})
    assert load.holds_with(now) == holds


def test_the_time_of_an_epoch():
    """Rollouts as they were played, then updates, too; a share of groups without a difference is not trained on."""
    probed = LOAD.model_copy(update={"seconds": 0.5, "groups": 8, "differing": 2, "different_tokens": 60.0})
    seconds = epoch_seconds(SPEED, probed, 10, 2)
    assert (seconds.rollouts, seconds.training) == pytest.approx((5, 10 * 0.25 * 60 / 500 + 2))
    assert seconds.total == pytest.approx(5 + 10 * 0.25 * 60 / 500 + 2)
    assert epoch_seconds(None, probed, 10, 2) is None
    played = probed.model_copy(update={"update_seconds": 0.2})
    assert epoch_seconds(None, played, 10, 2).total == epoch_seconds(SPEED, played, 10, 2).total == pytest.approx(7)


def test_before_a_rollout_was_played_no_time_is_known():
    """What an agent, its tools and its scores take follows from nothing that could be measured."""
    assert epoch_seconds(SPEED, LOAD, 10, 2) is None
