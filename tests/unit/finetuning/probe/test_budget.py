"""How much of a probe fits into its time, and when its answer is clear."""

from math import inf

import pytest

from fakes.probe_reports import MIXED, ONES, ZEROS, report_of
from nat.finetuning.probe.budget import FIRST_ROUND, is_clear, next_round


@pytest.mark.parametrize(
    ("played", "playing", "left", "count"),
    [
        (0, 0.0, inf, FIRST_ROUND),
        (0, 0.0, -5.0, FIRST_ROUND),
        (2, 1.0, inf, 2),
        (8, 4.0, inf, 8),
        (16, 9.0, inf, 4),
        (8, 8.0, 3.5, 3),
        (8, 8.0, 0.5, 0),
        (8, 8.0, -1.0, 0),
    ],
    ids=["the first round", "loading took long", "as many again", "and again", "the rest", "a part", "no time", "late"],
)
def test_a_round_doubles_what_was_played_as_far_as_there_is_time(played, playing, left, count):
    """The examples so far say what one takes; the first round is played whatever loading took."""
    assert next_round(20, played, playing=playing, left=left) == count


def clear(now, before, *, full=True, weak_below=0.2):
    return is_clear(now, before, weak_below=weak_below, full=full)


MOSTLY = report_of(*[MIXED] * 9, ZEROS)


def test_two_full_looks_that_agree_are_clear():
    """The share of groups with a difference is above the bound with all of its interval."""
    assert clear(MOSTLY, report_of(*[MIXED] * 5))
    assert not clear(MOSTLY, None)
    assert not clear(MOSTLY, report_of(ZEROS, ZEROS)), "another verdict"
    assert not clear(MOSTLY, report_of(*[MIXED] * 5), full=False), "its speed is not that of an epoch"


def test_an_interval_that_holds_the_bound_is_not_clear():
    """Two of ten groups may be a fifth, more or less."""
    some = report_of(MIXED, MIXED, *[ZEROS] * 4, *[ONES] * 4)
    assert not clear(some, some)


def test_few_groups_with_a_difference_are_clear_below_the_bound():
    """One of forty is less than a fifth, with all of its interval."""
    few = report_of(MIXED, *[ZEROS] * 39)
    assert clear(few, few)


def test_no_difference_at_all_is_never_clear():
    """Further rollouts may still show a rare success."""
    none = report_of(*[ZEROS] * 60)
    assert not clear(none, none)


def test_rollouts_that_are_all_lost_are_clear_at_once():
    """A run would end after its first rollouts, too."""
    assert clear(report_of(num_rollouts=16, left_out={"failed": 16}), None, full=False)


@pytest.mark.parametrize(("groups", "found"), [([ZEROS, ONES], True), ([ZEROS, ZEROS], False)])
def test_an_algorithm_that_compares_across_groups_needs_no_share(groups, found):
    """Groups without a difference teach it, if other groups have another reward."""
    report = report_of(*groups, across_groups=True)
    assert clear(report, report) == found
