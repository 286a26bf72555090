from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.run_records import NOON
from nat.errors import EvaluationError
from nat.finetuning.verdict import compare
from nat.runs.records import ValidationRecord, Verdict

SCORE = st.one_of(st.none(), st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0]))


def scores(*values):
    return {str(number): value for number, value in enumerate(values)}


def games(seed, share, count=100):
    """Win or loss of `count` games, won with probability `share`."""
    generator = Random(seed)  # noqa: S311 - statistics, not secrets
    return scores(*(float(generator.random() < share) for _ in range(count)))


def test_a_clear_rise_is_an_improvement():
    """An interval above zero is the word `improved`, and the sentence has all the numbers."""
    comparison = compare(games(1, 0.4), games(2, 0.85))
    assert comparison.verdict is Verdict.IMPROVED
    assert 0 < comparison.interval[0] < comparison.difference < comparison.interval[1]
    assert comparison.sentence == (
        "Improved: 0.330 → 0.780 on the same 100 held-out examples; difference +0.450, 95% interval +0.330 to +0.570."
    )


def test_a_clear_fall_is_worse():
    """The mirror image of an improvement."""
    up, down = compare(games(1, 0.4), games(2, 0.85)), compare(games(2, 0.85), games(1, 0.4))
    assert down.verdict is Verdict.WORSE
    assert down.difference == -up.difference
    assert down.sentence.startswith("Worse:")


def test_what_chance_explains_is_not_shown():
    """An interval that contains zero gives no verdict, and the sentence says what would help."""
    comparison = compare(games(1, 0.5), games(2, 0.5))
    low, high = comparison.interval
    assert low <= 0 <= high
    assert comparison.verdict is Verdict.NOT_SHOWN
    assert comparison.sentence.endswith("The interval contains zero; more held-out examples would make it narrower.")


@pytest.mark.parametrize(("count", "verdict"), [(5, Verdict.NOT_SHOWN), (6, Verdict.IMPROVED)])
def test_few_changed_examples_prove_nothing(count, verdict):
    """All alike is 2 of 2^n cases of chance, so fewer than six are no proof, however narrow the interval."""
    comparison = compare(scores(*[0.0] * count), scores(*[1.0] * count))
    assert comparison.interval == (1.0, 1.0)
    assert comparison.verdict is verdict


def test_an_unchanged_model_is_not_shown_to_improve():
    """Without variance the interval is [0, 0], and nothing divides by zero."""
    same = games(1, 0.5)
    comparison = compare(same, same)
    assert (comparison.interval, comparison.num_differing) == ((0.0, 0.0), 0)
    assert "Only 0 examples changed; at least 6 must" in comparison.sentence


def test_failed_examples_are_left_out_of_both_sides():
    """A failure is no zero: only pairs count, in the means too, and the rest is counted."""
    before = scores(1.0, None, 0.0, 0.0) | {"only before": 1.0}
    after = scores(1.0, 1.0, None, 1.0) | {"only after": 0.0}
    comparison = compare(before, after)
    assert (comparison.num_examples, comparison.num_left_out) == (2, 4)
    assert (comparison.before, comparison.after, comparison.difference) == (0.5, 1.0, 0.5)
    assert "4 more were left out, having no score." in comparison.sentence


def test_no_pair_at_all_is_an_error_with_the_counts():
    """There is nothing to compare, and a number would be invented."""
    with pytest.raises(EvaluationError, match=r"before \(1 of 2 have one\) and after training \(0 of 2\)"):
        compare(scores(1.0, None), scores(None, None))


def test_thirds_that_cancel_are_zero():
    """Rounding errors of repeated examples must not become an improvement."""
    before = scores(*[1 / 3, 1.0, 2 / 3] * 4)
    after = scores(*[2 / 3, 2 / 3, 2 / 3] * 4)
    assert compare(before, after).difference == 0.0


@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.tuples(SCORE, SCORE), min_size=1, max_size=12), st.integers(0, 9))
def test_the_interval_is_sane_for_any_scores(pairs, seed):
    """It holds the difference, is the same for the same seed, and agrees with the verdict."""
    before = {key: pair[0] for key, pair in pairs.items()}
    after = {key: pair[1] for key, pair in pairs.items()}
    if all(None in pair for pair in pairs.values()):
        return
    comparison = compare(before, after, seed=seed)
    low, high = comparison.interval
    assert low - 1e-9 <= comparison.difference <= high + 1e-9
    assert comparison == compare(before, after, seed=seed)
    assert comparison.num_examples + comparison.num_left_out == len(pairs)
    if comparison.verdict is not Verdict.NOT_SHOWN:
        assert low > 0 or high < 0


def test_the_seed_is_the_only_chance():
    """Another seed resamples anew; the difference itself does not depend on it."""
    one, other = (compare(games(1, 0.4, 37), games(2, 0.6, 37), seed=seed) for seed in (1, 2))
    assert one.difference == other.difference


def test_false_verdicts_are_as_rare_as_promised():
    """An unchanged model gets a verdict in about one of twenty runs; here in at most 4 of 40."""
    generator = Random(0)  # noqa: S311 - statistics, not secrets
    plays = [scores(*(float(generator.random() < 0.5) for _ in range(20))) for _ in range(80)]
    verdicts = [compare(before, after).verdict for before, after in zip(plays[::2], plays[1::2], strict=True)]
    assert sum(verdict is not Verdict.NOT_SHOWN for verdict in verdicts) <= 4


def test_validation_records_feed_it():
    """The scores of two validations go in as they are recorded."""
    record = ValidationRecord(epoch=0, timestamp=NOON, scores={"a": 0.5, "b": None})
    assert compare(record.scores, record.scores).num_left_out == 1
