from math import fsum, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.run_records import validation_record
from nat.data_models.rollout_failure import RAISED, TIMED_OUT, FailureCount
from nat.finetuning.verdict import compare, compare_validations, interval_of, smallest_improvement
from nat.runs.records import Verdict

SCORE = st.one_of(st.none(), st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0]))


def scores(*values):
    return {str(number): value for number, value in enumerate(values)}


def games(seed, share, count=100):
    """Wins and losses of `count` games with win probability `share`."""
    generator = Random(seed)
    return scores(*(float(generator.random() < share) for _ in range(count)))


def test_a_clear_change_is_named_with_all_numbers():
    """Above zero the word is `improved`; its mirror image is `worse`; in between, the sentence says what would help."""
    up, down, same = (
        compare(games(*a), games(*b)) for a, b in (((1, 0.4), (2, 0.85)), ((2, 0.85), (1, 0.4)), ((1, 0.5), (2, 0.5)))
    )
    assert [each.verdict for each in (up, down, same)] == [Verdict.IMPROVED, Verdict.WORSE, Verdict.NOT_SHOWN]
    assert up.sentence == (
        "Improved: 0.330 → 0.780 on the same 100 held-out examples; difference +0.450, 95% interval +0.319 to +0.563."
    )
    assert (down.difference, down.interval) == (-up.difference, pytest.approx((-up.interval[1], -up.interval[0])))
    assert same.sentence.endswith("The interval contains zero; more held-out examples would make it narrower.")


@pytest.mark.parametrize(
    ("before", "after", "verdict", "told"),
    [
        ([0.0] * 5, [1.0] * 5, Verdict.NOT_SHOWN, "Too few held-out examples: a verdict takes at least 6"),
        ([0.0] * 6, [1.0] * 6, Verdict.IMPROVED, "Improved:"),
        ([1.0] * 6, [0.0] * 6, Verdict.WORSE, "Worse:"),
        ([0.0] * 305, [1.0] * 5 + [0.0] * 300, Verdict.NOT_SHOWN, "5 of 305 examples changed; at least 6 must"),
        ([0.0] * 300, [1.0] + [0.0] * 299, Verdict.NOT_SHOWN, "1 of 300 examples changed"),
        ([0.0, 1.0] * 3, [1.0, 0.0] * 3, Verdict.NOT_SHOWN, "The interval contains zero"),
        ([1.0, 0.0] * 50, [1.0, 0.0] * 50, Verdict.NOT_SHOWN, "0 of 100 examples changed; at least 6 must"),
    ],
)
def test_few_changes_prove_nothing(before, after, verdict, told):
    """Five equal changes have a chance above 5 %, like five coins, among however many unchanged examples."""
    comparison = compare(scores(*before), scores(*after))
    assert comparison.verdict is verdict
    assert told in comparison.sentence


RIGHT, WRONG = [1.0] * 12, [0.0] * 12


@pytest.mark.parametrize(
    ("before", "after", "verdict", "means", "told"),
    [
        (WRONG + RIGHT, RIGHT + [None] * 12, Verdict.CANNOT_TELL, (0.5, 0.5), "12 of 24 fail since training"),
        (RIGHT + [None] * 12, RIGHT * 2, Verdict.CANNOT_TELL, (0.5, 1.0), "12 of 24 failed before training"),
        (RIGHT * 2, [None] * 12 + RIGHT, Verdict.CANNOT_TELL, (1.0, 0.5), "12 of 24 fail since training"),
        (RIGHT * 2, [None] * 12 + WRONG, Verdict.WORSE, (1.0, 0.0), "12 of 24 fail since training"),
        (WRONG * 2, RIGHT + [None] * 12, Verdict.IMPROVED, (0.0, 0.5), "12 of 24 fail since training"),
        (WRONG * 2 + [0.0], [*WRONG * 2, None], Verdict.NOT_SHOWN, (0.0, 0.0), "1 of 25 fail since training"),
        ([1.0, None], [None, 1.0], Verdict.NOT_SHOWN, (0.5, 0.5), "fail since training and 1 of 2 failed before"),
    ],
)
def test_an_example_that_fails_on_one_side_is_evidence(before, after, verdict, means, told):
    """There is a verdict only if it holds with the failed ones as bad and as good as any score; nobody is left out."""
    comparison = compare(scores(*before), scores(*after))
    assert comparison.verdict is verdict
    assert (comparison.before, comparison.after) == means
    assert (comparison.num_examples, comparison.num_left_out) == (len(before), 0)
    assert told in comparison.sentence
    assert ("failed_score" in comparison.sentence) == (verdict is Verdict.CANNOT_TELL)


def test_an_example_that_always_fails_is_left_out():
    """It says nothing of the training; nor does one that was played once only, or a file without a common example."""
    comparison = compare(scores(1.0, None, 0.0) | {"gone": 1.0}, scores(1.0, None, 1.0) | {"new": 0.0})
    assert (comparison.num_examples, comparison.num_left_out) == (2, 1)
    assert (comparison.before, comparison.after, comparison.difference) == (0.5, 1.0, 0.5)
    assert "1 more were left out, having no score." in comparison.sentence
    assert compare({"a": 1.0, "b": None}, {"b": None, "c": 1.0}) is None


def test_a_verdict_names_the_error_that_is_new():
    """A failure that was there before is not what training has done; a copy that fails is its example failing."""
    late, wrong = (
        FailureCount(cause=TIMED_OUT, count=9),
        FailureCount(cause=RAISED, count=2, error="ValueError: no JSON"),
    )
    before = validation_record(0, scores(0.0, 0.0, 1.0, 1.0, None)).model_copy(
        update={"failures": [late], "copies": {"3": "2"}}
    )
    after = before.model_copy(update={"scores": scores(1.0, 0.0, 1.0, None, None), "failures": [late, wrong]})
    since, back = compare_validations(before, after), compare_validations(after, before)
    assert "1 of 3 fail since training (first error: ValueError: no JSON)" in since.sentence
    assert "1 of 3 failed before training (first error: ValueError: no JSON)" in back.sentence
    assert (since.num_failing_since, back.num_failed_before) == (1, 1)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.tuples(SCORE, SCORE), min_size=1, max_size=12))
def test_the_interval_is_consistent_for_any_scores(pairs):
    """The interval contains the difference, has a width, and agrees with the verdict."""
    before = {key: pair[0] for key, pair in pairs.items()}
    after = {key: pair[1] for key, pair in pairs.items()}
    comparison = compare(before, after)
    if comparison is None:
        assert all(pair == (None, None) for pair in pairs.values())
        return
    low, high = comparison.interval
    assert low - 1e-9 <= comparison.difference <= high + 1e-9
    assert low < high
    assert comparison.num_examples + comparison.num_left_out == len(pairs)
    failed = any(None in pair and pair != (None, None) for pair in pairs.values())
    unsure = {Verdict.NOT_SHOWN, Verdict.CANNOT_TELL} if failed else {Verdict.NOT_SHOWN}
    assert comparison.verdict in ({Verdict.IMPROVED} if low > 0 else {Verdict.WORSE} if high < 0 else unsure)


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


NULLS = [normal, heavy_tailed, mostly_zero, binary]


def missed(draw, mean, count, scale=None):
    """Share of the simulated intervals that exclude the true mean."""
    rng = Random(f"{draw.__name__} {count}")
    wrong = 0
    for _ in range(RUNS):
        differences = [draw(rng) for _ in range(count)]
        low, high = interval_of(differences, scale or max(map(abs, differences)) or 1.0)
        wrong += not low - 1e-9 <= mean <= high + 1e-9
    return wrong / RUNS


@pytest.mark.parametrize("count", [6, 10, 30, 100])
@pytest.mark.parametrize("draw", NULLS)
def test_an_unchanged_model_rarely_gets_a_verdict(draw, count):
    """For any distribution of differences, at most about 5 % of intervals exclude zero; 7 % is 2.3 sigma off."""
    assert missed(draw, 0.0, count) <= 0.07


@pytest.mark.parametrize(("rise", "fall"), [(0.03, 0.0), (0.9, 0.0), (0.5, 0.05), (0.3, 0.1)])
@pytest.mark.parametrize("count", [6, 10, 30, 100])
def test_the_interval_contains_the_true_change_of_wins(rise, fall, count):
    """This also holds if all observed differences are equal and have no spread."""

    def won(rng):
        value = rng.random()
        return 1.0 if value < rise else -1.0 if value > 1 - fall else 0.0

    assert missed(won, rise - fall, count, scale=1.0) <= 0.07


SERIES = {7: 2.364575373950131661, 9: 2.262143575445636335, 29: 2.045229605341896472}
"""Student's t at 97.5 % by series 26.7.5 of Abramowitz and Stegun (1964), summed with 40 digits."""


@pytest.mark.parametrize("sign", [1, -1])
def test_the_deciding_end_is_halls(sign):
    """With skew g, Hall's end solves θ + gθ²/3 + g²θ³/27 + g/6n = t/√n for its distance θ in deviations."""
    differences = [sign * value for value in (1.0, 1.1, 0.9, 1.2, 1.05, 0.95, 1.1, 0.25, 0.3, 1.0)]
    low, high = interval_of(differences, scale=9.0)
    end, other = (low, high) if sign > 0 else (high, low)
    count, mean = len(differences), fsum(differences) / len(differences)
    moments = [fsum((value - mean) ** power for value in differences) / count for power in (2, 3)]
    skew, spread = moments[1] / moments[0] ** 1.5, sqrt(moments[0] * count / (count - 1))
    theta, reach = (mean - end) / spread, sign * SERIES[9] / sqrt(10)
    assert theta + skew * theta**2 / 3 + skew**2 * theta**3 / 27 + skew / 60 == pytest.approx(reach, rel=1e-12)
    assert sign * end > 0
    assert abs(theta) > abs(reach)  # wider than plain t, which a skew in this direction makes too sure
    assert sign * other > sign * mean + 2


@pytest.mark.parametrize("count", [8, 12, 40, 301])
def test_the_smallest_improvement_is_where_the_verdict_begins(count):
    """`compare` judges this rise as an improvement, and one example less as not shown."""
    smallest, verdicts = round(smallest_improvement(count) * count), []
    for rises in (smallest, smallest - 1):
        before, after = scores(*[0.0] * rises, *[1.0] * (count - rises)), scores(*[1.0] * count)
        verdicts.append(compare(before, after).verdict)
    assert verdicts == [Verdict.IMPROVED, Verdict.NOT_SHOWN]
