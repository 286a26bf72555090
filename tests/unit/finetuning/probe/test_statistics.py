"""The numbers of a probe, against formulas and against simulations."""

from itertools import pairwise
from math import comb
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.finetuning.probe.statistics import (
    ENOUGH_SIGNAL,
    GENERATIONS,
    advised_generations,
    interval_of_share,
    prospects,
    score_noise,
    value_counts,
)

REWARDS_EG = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 1.0]) | st.floats(-1e6, 1e6), min_size=1, max_size=8), min_size=1, max_size=8
)
POPULATIONS = {
    "always half": lambda _rng: 0.5,
    "a fifth": lambda _rng: 0.2,
    "rare": lambda _rng: 0.03,
    "some never, some half": lambda rng: rng.choice([0.0, 0.0, 0.5]),
    "all kinds": lambda rng: rng.random(),
    "mostly extreme": lambda rng: rng.betavariate(0.3, 0.7),
}


def dice(seed: int) -> Random:
    return Random(seed)


def played(rng, draw, examples=16, generations=8):
    """Rewards of 0 and 1 of examples from a population."""
    chances = [draw(rng) for _ in range(examples)]
    return [[float(rng.random() < chance) for _ in range(generations)] for chance in chances]


def true_share(rng, draw, generations):
    chances = [draw(rng) for _ in range(4000)]
    return fmean(1 - p**generations - (1 - p) ** generations for p in chances)


@given(REWARDS_EG)
def test_shares_are_probabilities_that_grow_with_the_generations(rewards_EG):
    """A larger group has a difference more often, and compares its rewards better."""
    found = prospects(value_counts(rewards_EG))
    assert all(0 <= each.signal <= each.share <= 1 + 1e-9 for each in found)
    for fewer, more in pairwise(found):
        assert fewer.share <= more.share + 1e-9
        assert fewer.signal <= more.signal + 1e-9


@given(REWARDS_EG, st.floats(0.5, 4), st.floats(-3, 3))
def test_the_scale_of_the_rewards_does_not_matter(rewards_EG, factor, offset):
    """Multiplied and shifted rewards are as different as before."""
    rounded_EG = [[round(reward, 3) for reward in rewards_G] for rewards_G in rewards_EG]
    small_EG = [[reward % 7 for reward in rewards_G] for rewards_G in rounded_EG]
    moved_EG = [[factor * reward + offset for reward in rewards_G] for rewards_G in small_EG]
    counts, moved = value_counts(small_EG), value_counts(moved_EG)
    assert [each.total() for each in counts] == [each.total() for each in moved]
    assert [each.share for each in prospects(counts)] == pytest.approx([each.share for each in prospects(moved)])


def test_two_rewards_are_a_beta_binomial():
    """With a prior that all examples share, the share is 1 - p^G - (1-p)^G averaged over the Beta posterior."""
    rng = dice(3)
    counts_EV = value_counts([[0.0] * 3 + [1.0] * 5] * 2000)
    drawn = [rng.betavariate(2000 * 5 + 0.5, 2000 * 3 + 0.5) for _ in range(2000)]
    [found] = prospects(counts_EV, [4])
    assert found.share == pytest.approx(fmean(1 - p**4 - (1 - p) ** 4 for p in drawn), abs=0.01)
    assert found.signal == pytest.approx(found.share * 3 / 4)


@pytest.mark.parametrize("name", POPULATIONS)
def test_expected_shares_are_those_of_the_population(name):
    """The mean of many probes is close to the truth for the generations that were played, and for more less so."""
    rng, draw = dice(7), POPULATIONS[name]
    found = [prospects(value_counts(played(rng, draw))) for _ in range(60)]
    for place, (generations, error) in enumerate(zip(GENERATIONS, (0.04, 0.04, 0.08, 0.14), strict=True)):
        expected = fmean(each[place].share for each in found)
        assert expected == pytest.approx(true_share(rng, draw, generations), abs=error)


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_advice_has_most_of_the_possible_signal(name):
    """In 9 of 10 probes, the advised number has nearly `ENOUGH_SIGNAL` of the population's best signal per rollout."""
    rng, draw = dice(11), POPULATIONS[name]
    truth = {G: true_share(rng, draw, G) * (1 - 1 / G) for G in GENERATIONS}
    advised = [advised_generations(prospects(value_counts(played(rng, draw)))) for _ in range(60)]
    enough = [truth[G] >= (ENOUGH_SIGNAL - 0.1) * max(truth.values()) for G in advised]
    assert fmean(enough) >= 0.9


@pytest.mark.parametrize(("chance", "expected"), [(0.5, {8}), (0.2, {8, 16}), (0.03, {32})])
def test_rarer_success_takes_more_generations(chance, expected):
    """Examples that are solved half of the time need 8 generations, rare success 32."""
    rng = dice(5)
    advised = {
        advised_generations(prospects(value_counts(played(rng, lambda _rng: chance, examples=64)))) for _ in range(20)
    }
    assert advised <= expected


def test_continuous_rewards_need_few_generations():
    """Rewards that all differ are compared by four."""
    rng = dice(2)
    found = prospects(value_counts([[rng.random() for _ in range(8)] for _ in range(16)]))
    assert min(each.share for each in found) > 0.99
    assert advised_generations(found) == 4


def test_without_any_success_little_is_expected():
    """Equal rewards only allow for what 128 rollouts may have missed."""
    found = prospects(value_counts([[0.0] * 8] * 16))
    assert found[-1].share < 0.06


def test_rewards_that_differ_by_rounding_are_equal():
    """0.3 and 0.1 + 0.2 are one reward."""
    assert value_counts([[0.3, 0.1 + 0.2, 0.5]]) == [{0: 2, 1: 1}]


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("total", [8, 16, 64])
def test_the_interval_covers_the_share(share, total):
    """The true share is in the interval in at least 95 % of samples of any size."""
    intervals = [interval_of_share(count, total) for count in range(total + 1)]
    assert all(0 <= low <= count / total <= high <= 1 for count, (low, high) in enumerate(intervals))
    covered = [count for count, (low, high) in enumerate(intervals) if low <= share <= high]
    assert sum(comb(total, count) * share**count * (1 - share) ** (total - count) for count in covered) >= 0.95


def test_the_interval_ends_at_the_sure_shares():
    """None and all of the groups leave 0 and 1 possible; thousands of groups make it narrow."""
    assert interval_of_share(0, 100) == (0.0, pytest.approx(0.0362, abs=1e-3))
    assert interval_of_share(900, 3000) == pytest.approx((0.2836, 0.3168), abs=1e-4)
    assert interval_of_share(100, 100) == (pytest.approx(0.9638, abs=1e-3), 1.0)


def noisy(rng, *, of_outputs, of_scores, examples=16, generations=8, scores=3):
    """Scores with a standard deviation between the outputs of an example, and one between the scores of an output."""
    found = []
    for _ in range(examples):
        level = rng.gauss(0, 5)
        outputs = [level + rng.gauss(0, of_outputs) for _ in range(generations)]
        found.append([[output + rng.gauss(0, of_scores) for _ in range(scores)] for output in outputs])
    return found


@pytest.mark.parametrize(("of_outputs", "of_scores"), [(1, 0.1), (1, 1), (1, 2), (0, 1)])
def test_noise_is_the_share_of_the_variance(of_outputs, of_scores):
    """The estimate is the evaluator's variance over the whole variance within groups; examples do not count."""
    rng = dice(4)
    truth = of_scores**2 / (of_scores**2 + of_outputs**2)
    found = [score_noise(noisy(rng, of_outputs=of_outputs, of_scores=of_scores)) for _ in range(40)]
    assert fmean(each.share for each in found) == pytest.approx(truth, abs=0.05)
    assert fmean(each.deviation for each in found) == pytest.approx(of_scores, rel=0.05)
    assert (found[0].outputs, found[0].scores) == (128, 3)


def test_a_steady_evaluator_has_no_noise():
    """Equal scores of each output are no noise, whether or not the outputs differ."""
    assert score_noise([[[0.1 + 0.2, 0.3], [1.0, 1.0]]]).share == 0
    assert score_noise([[[0.5, 0.5], [0.5, 0.5]]]).share == 0


@pytest.mark.parametrize("scores", [[], [[[1.0, 2.0]]], [[[1.0], [2.0]]]])
def test_noise_needs_two_outputs_with_two_scores(scores):
    """A group of one output, or outputs with one score, have nothing to compare."""
    assert score_noise(scores) is None
