"""The load of an epoch, and its time."""

import pytest

from fakes.forecasts import SPEED
from nat.sizing.load import ASSUMED_ANSWER, RolloutLoad, assumed_load, epoch_seconds

LOAD = RolloutLoad(calls=3, row_tokens=100, sampled_tokens=40, longest_row=150, basis="as in a run")


def test_an_epoch_has_so_many_tokens():
    """Chats are as many as play at the same time, and a step has its share of the epoch."""
    workload = LOAD.workload(64, at_a_time=8)
    assert (workload.chats, workload.row_tokens, workload.epoch_tokens) == (8, 150, 6400)
    assert workload.step_tokens == 3200
    assert workload.sampled_share == 0.4
    assert LOAD.workload(2, at_a_time=8).chats == 2


def test_before_the_first_run_the_longest_example_is_the_prompt():
    """Four characters are a token, and an answer has `max_tokens`."""
    load = assumed_load(401, 20)
    assert (load.assumed, load.calls, load.row_tokens, load.sampled_tokens) == (True, 1, 121, 20)
    assert assumed_load(0, None).sampled_tokens == ASSUMED_ANSWER


def test_the_time_of_an_epoch():
    """Prompts, steps of all chats, passes of the learner, and its optimizer steps."""
    seconds = epoch_seconds(SPEED, LOAD, 10, 2)
    assert (seconds.sampling, seconds.training, seconds.total) == pytest.approx((10.6, 4.0, 14.6))
    assert epoch_seconds(SPEED.model_copy(update={"chats": 0}), LOAD, 10, 2).sampling is None
