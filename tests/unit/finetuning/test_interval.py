"""What the interval promises, by simulation: seeded, so that each test always sees the same differences."""

from math import fsum, sqrt
from random import Random

import pytest

from nat.finetuning.interval import mean_interval

RUNS = 600


def normal(rng):
    return rng.gauss(0, 1)


def heavy_tailed(rng):
    """Student's t with 2 degrees of freedom, which has no variance."""
    return rng.gauss(0, 1) / (rng.expovariate(1)) ** 0.5


def mostly_zero(rng):
    return rng.gauss(0, 1) if rng.random() < 0.1 else 0.0


def binary(rng):
    return float(rng.random() < 0.5) - float(rng.random() < 0.5)


def skewed(rng):
    return rng.expovariate(1) - 1


NULLS = [normal, heavy_tailed, mostly_zero, binary]


def missed(draw, mean, count, scale=None):
    """Share of the simulated intervals that do not hold the true mean."""
    rng = Random(f"{draw.__name__} {count}")  # noqa: S311 - statistics, not secrets
    wrong = 0
    for _ in range(RUNS):
        differences = [draw(rng) for _ in range(count)]
        low, high = mean_interval(differences, scale or max(map(abs, differences)) or 1.0)
        wrong += not low - 1e-9 <= mean <= high + 1e-9
    return wrong / RUNS


@pytest.mark.parametrize("count", [6, 10, 30, 100])
@pytest.mark.parametrize("draw", NULLS)
def test_an_unchanged_model_rarely_gets_a_verdict(draw, count):
    """Zero is left out in about 5 % of the cases at most, whatever the differences look like; 7 % is 2.3 sigma off."""
    assert missed(draw, 0.0, count) <= 0.07


@pytest.mark.parametrize("count", [6, 10, 30, 100])
def test_skewed_differences_of_mean_zero_rarely_give_a_verdict(count):
    """Many that fall a little and few that rise much, with a mean of zero: plain t is wrong in 7 to 11 %."""
    assert missed(skewed, 0.0, count) <= 0.085


@pytest.mark.parametrize(("rise", "fall"), [(0.03, 0.0), (0.9, 0.0), (0.5, 0.05), (0.3, 0.1)])
@pytest.mark.parametrize("count", [6, 10, 30, 100])
def test_the_true_change_of_wins_is_inside(rise, fall, count):
    """Also where every difference that was seen is the same, so that their own spread is zero."""

    def won(rng):
        value = rng.random()
        return 1.0 if value < rise else -1.0 if value > 1 - fall else 0.0

    assert missed(won, rise - fall, count, scale=1.0) <= 0.07


@pytest.mark.parametrize("count", [6, 10, 30, 100])
def test_a_rare_rise_is_inside(count):
    """Nine of ten examples stay as they are, the others rise by up to 1: what was not seen is allowed for."""
    assert missed(lambda rng: rng.random() if rng.random() < 0.1 else 0.0, 0.05, count, scale=1.0) <= 0.07


def test_a_clear_change_of_few_continuous_scores_is_found():
    """Ten examples that each rise by one to three times their spread are enough."""
    low, high = mean_interval([1.2, 2.9, 1.7, 2.2, 1.1, 2.4, 1.9, 2.6, 1.5, 2.0], scale=6.0)
    assert 0 < low < 1.95 < high


def test_the_interval_mirrors():
    """What rose, told the other way round, fell."""
    differences = [0.3, -0.1, 0.8, 0.0, 0.25, 0.7, 0.9, 0.4]
    low, high = mean_interval(differences, 1.0)
    mirrored = mean_interval([-difference for difference in differences], 1.0)
    assert mirrored == pytest.approx((-high, -low))


SERIES = {7: 2.364575373950131661, 9: 2.262143575445636335, 29: 2.045229605341896472}
"""Student's t at 97.5 % by the series 26.7.5 of Abramowitz and Stegun (1964), summed with 40 digits."""


@pytest.mark.parametrize(("freedom", "exact"), [(7, 2.364624), (9, 2.262157), (29, 2.045230)])
def test_the_quantile_is_that_of_the_tables(freedom, exact):
    """Unchanged scores give the interval of one rise and one fall: t times their standard error."""
    count = freedom + 1
    low, high = mean_interval([0.0] * (count - 2), scale=1.0)
    assert -low == high == pytest.approx(SERIES[freedom] * sqrt(2 / freedom / count), rel=1e-13)
    assert SERIES[freedom] == pytest.approx(exact, abs=5e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_end_that_tells_a_change_is_halls(sign):
    """With skew g it solves θ + gθ²/3 + g²θ³/27 + g/6n = t/√n for θ, its distance from the mean in deviations."""
    differences = [sign * value for value in (1.0, 1.1, 0.9, 1.2, 1.05, 0.95, 1.1, 0.25, 0.3, 1.0)]
    low, high = mean_interval(differences, scale=9.0)
    end, other = (low, high) if sign > 0 else (high, low)
    count, mean = len(differences), fsum(differences) / len(differences)
    moments = [fsum((value - mean) ** power for value in differences) / count for power in (2, 3)]
    skew, spread = moments[1] / moments[0] ** 1.5, sqrt(moments[0] * count / (count - 1))
    theta, reach = (mean - end) / spread, sign * SERIES[9] / sqrt(10)
    assert theta + skew * theta**2 / 3 + skew**2 * theta**3 / 27 + skew / 60 == pytest.approx(reach, rel=1e-12)
    assert sign * end > 0
    assert abs(theta) > abs(reach)  # wider than plain t, which a skew in this direction makes too sure
    assert sign * other > sign * mean + 2


def test_the_plain_end_stays_where_halls_is_nearer():
    """A skew in the other direction does not make the interval narrower."""
    differences = [1.0, 1.1, 0.9, 1.2, 1.05, 0.95, 1.1, 1.75, 1.9, 1.0]
    low, _ = mean_interval(differences, scale=9.0)
    mean = fsum(differences) / 10
    spread = sqrt(fsum((value - mean) ** 2 for value in differences) / 9)
    assert low == pytest.approx(mean - SERIES[9] * spread / sqrt(10), rel=1e-12)


def test_the_same_small_rise_everywhere_is_found():
    """Differences without spread are as certain as differences get, from the sixth example on."""
    assert mean_interval([0.001] * 6, scale=1.0)[0] == pytest.approx(0.001)
    assert mean_interval([0.001] * 5, scale=1.0)[0] < 0
