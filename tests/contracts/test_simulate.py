"""The simulation of many GPUs: what no simulation may do, and how far it is from what was measured."""

import re
import tomllib

import pytest
from bench import figures
from bench.simulate import (
    COSTS,
    HEAD,
    MODELS,
    STALENESS,
    Simulation,
    checks,
    costs_of,
    limit,
    row,
    simulate,
)
from hypothesis import given, settings
from hypothesis import strategies as st

TOLERANCE = {"rollouts per second": 0.10, "of their update": 0.15, "on a GPU": 0.35}
"""Of the measured figure. The measured epochs also built CUDA graphs, which the measured steps leave out."""

small = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 9),
        "turns": st.integers(1, 4),
        "chats_at_a_time": st.integers(1, 5),
        "answer_spread": st.floats(0, 1.5),
        "tool_seconds": st.floats(0, 9),
        "hand_over_seconds": st.floats(0, 5),
        "hands_over": st.booleans(),
        "workers": st.integers(0, 2),
    }
)


@given(small, st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(0, 3), st.integers(1, 4), st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_no_simulation_gains_or_loses_work(own, way, staleness, updates, seed):
    """Each rollout that starts ends and is trained once, no older than allowed, and nobody does two things at once."""
    costs, (learner, engines) = costs_of("8B", **own), way
    run = Simulation(costs, learner, engines, gpus=8, staleness=staleness, updates=updates, seed=seed)
    found, ends = run.run(), run.clock.now * (1 + 1e-9)
    assert found.started == found.ended == found.trained == len(found.ages) == updates * costs.batch
    assert all(0 <= age <= staleness for age in found.ages)
    assert all(each.busy <= ends for each in (*run.engines, *run.workers, run.learner, run.recorder))
    most = max(chats / costs.step(chats) for chats in range(1, costs.chats_at_a_time + 1))
    for engine in run.engines:
        assert engine.most <= costs.chats_at_a_time
        assert engine.tokens <= most * engine.busy * (1 + 1e-9)
    read = costs.prompt_tokens + (costs.turns - 1) * costs.added_tokens
    assert sum(engine.tokens for engine in run.engines) == pytest.approx(found.tokens - found.trained * read, rel=1e-6)
    trained = found.tokens / (learner * costs.learner_tokens_per_second)
    assert run.learner.busy >= trained
    assert -1e-9 <= found.learner_idle <= 1
    assert -1e-9 <= found.engines_idle <= 1


def test_rollouts_may_start_before_the_update_only_if_they_may_be_old():
    """Without staleness each rollout is of the newest weights, and learner and engines wait for each other."""
    costs = costs_of("8B", batch=64)
    one, other = (simulate(costs, 8, staleness) for staleness in (0, 1))
    assert set(one.ages) == {0}
    assert set(other.ages) == {0, 1}  # the first batch is not old
    assert other.rollouts_per_second > one.rollouts_per_second
    assert one.learner_idle + one.engines_idle > 1


def test_a_model_that_fits_on_no_card_is_left_out():
    """70B takes two cards to sample and four to learn; a GPU that does both by turns has no staleness."""
    assert [simulate(costs_of("70B"), gpus, 0) is None for gpus in (1, 4, 5, 6)] == [True, True, True, False]
    assert row("8B", costs_of("8B", batch=8), 1, 1) is None


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"learner_tokens_per_second": 60.0}, "the learner"),
        ({"steps": ((1, 0.5), (64, 9.0))}, "the engines"),
        ({"tool_seconds": 500.0}, "tools and slow rollouts"),
        ({"hand_over_seconds": 900.0}, "handing weights over"),
        ({"rollout_seconds": 3.0}, "recording in one process"),
    ],
)
def test_the_limit_is_what_would_gain_most(own, said):
    """Each part, made slow, is named."""
    costs = costs_of("8B", batch=64, **own)
    assert limit(costs, simulate(costs, 8, 1), 1).startswith(said)


def test_every_cost_has_a_source():
    """Which says whether it was measured; what is assumed or scaled is no measurement."""
    figures = tomllib.loads(COSTS.read_text())
    parts = [figures["all"], *figures["model"].values()]
    found = [figure for part in parts for key, figure in part.items() if key != "like"]
    assert len(found) > 30
    assert [each for each in found if not re.match(r"(measured|computed|scaled|assumed): \w", each["source"])] == []


def test_measured_figures_are_met():
    """Ray on one and two processes, and the parts of epochs on one GPU; two learners or engines were not measured."""
    found = list(checks())
    assert len(found) == 8
    for what, own, measured in found:
        [tolerance] = [each for words, each in TOLERANCE.items() if words in what]
        assert own == pytest.approx(measured, rel=tolerance), what


def test_the_page_has_what_is_simulated():
    """A line for each case, and one of them again as it is simulated now."""
    lines = figures.table("simulate").splitlines()
    assert lines[0] == HEAD[0]
    assert row("8B", costs_of("8B"), 8, 1) in lines
    for model in MODELS:
        for staleness in STALENESS:
            assert any(line.startswith(f"| {model}, {staleness}, 1,024 |") for line in lines)
