"""A line of the metrics stream."""

import json
import math

from nat.art.server.metrics import stream_metrics

STEP = {"loss": 0.5, "policy_loss": 0.4, "entropy": 2.0, "grad_norm": 3.0, "reference_kl": 0.1, "update_ratio": 1e-3}
FACTS = {"data/step_num_trajectories": 4.0}


def test_both_families_of_names_are_in_each_line():
    """Clients up to 0.5.16 read bare names and demand num_gradient_steps, later ones read prefixed names."""
    line = stream_metrics(STEP, FACTS, 3, 1e-5)
    old = {"loss": 0.5, "policy_loss": 0.4, "entropy": 2.0, "grad_norm": 3.0, "kl_div": 0.1, "num_gradient_steps": 3}
    new = {"loss/train": 0.5, "loss/entropy": 2.0, "loss/grad_norm": 3.0, "loss/learning_rate": 1e-5}
    kl = {"loss/kl_policy_ref": 0.1}
    assert line == old | new | kl | FACTS | {"data/step_num_gradient_steps": 3}
    assert all(type(value) is float for value in line.values())


def test_the_rate_of_the_step_goes_first():
    """A step may use another rate than the call asked for, for instance with many trajectories."""
    assert stream_metrics({**STEP, "learning_rate": 2e-5}, {}, 1, 1e-5)["loss/learning_rate"] == 2e-5


def test_what_is_no_number_is_left_out():
    """Clients parse each value as a number; JSON has none for NaN."""
    line = stream_metrics({**STEP, "entropy": math.nan, "loss": math.inf}, FACTS, 1, 1e-5)
    assert not {"entropy", "loss/entropy", "loss", "loss/train"} & line.keys()
    json.dumps(line, allow_nan=False)


def test_a_call_without_a_signal_has_no_loss():
    """It made no step; the facts say how many groups came in."""
    line = stream_metrics({}, FACTS, 0, 1e-5)
    assert line == {"num_gradient_steps": 0, "data/step_num_gradient_steps": 0, **FACTS}
