from hypothesis import given
from hypothesis import strategies as st
from pytest import approx  # noqa: PT013 - reads as a word

from nat.runs.curves import mean_interval, moving_average, smoothing_reach

NUMBERS = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


def test_moving_average_is_centred():
    """Each value is averaged with its neighbours on both sides; the ends with those there are."""
    assert moving_average([0, 3, 6, 0], 1) == [1.5, 3, 3, 3]


@given(NUMBERS, st.integers(0, 40))
def test_moving_average_stays_within_the_values(values, reach):
    """Smoothing keeps the length and invents no extremes."""
    smooth = moving_average(values, reach)
    assert len(smooth) == len(values)
    assert min(values) - 1e-9 <= min(smooth)
    assert max(smooth) <= max(values) + 1e-9


def test_smoothing_grows_with_the_run():
    """A short run is averaged over three epochs, a long one over about a tenth of it."""
    assert [smoothing_reach(count) for count in (1, 20, 100)] == [1, 1, 5]


def test_mean_interval_is_the_normal_one():
    """Mean ± 1.96 standard errors, by the sample's standard deviation."""
    low, mean, high = mean_interval([0.0] * 50 + [1.0] * 50)
    assert mean == 0.5
    reach = 1.959964 * (0.25 * 100 / 99 / 100) ** 0.5
    assert (low, high) == approx((0.5 - reach, 0.5 + reach))


@given(NUMBERS)
def test_mean_interval_holds_the_mean_and_stays_in_range(scores):
    """The bar never leaves the scores' own range, and one score alone has no width."""
    low, mean, high = mean_interval(scores)
    assert min(scores) <= low <= mean <= high <= max(scores)
    assert mean_interval(scores[:1] * len(scores)) == (scores[0],) * 3
