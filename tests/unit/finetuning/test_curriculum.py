from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nat.data_models.finetuning import CurriculumLearningConfig, Trajectory
from nat.finetuning.curriculum import CurriculumState, description, select

REWARDS = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), max_size=12)


def groups_of(*rewards):
    return [[Trajectory(episode=[], reward=r) for r in group] for group in rewards]


def config(**fields):
    return CurriculumLearningConfig(enabled=True, **fields)


def begin(settings):
    return CurriculumState(current_percentile=settings.initial_percentile)


def chosen(groups, settings, *, epoch=0, state=None):
    return select(groups, state or begin(settings), settings, epoch=epoch, rng=Random(0))


def means(selection):
    return [sum(t.reward for t in g) / len(g) for g in selection.groups]


GROUPS = groups_of((0.0, 0.2), (0.8, 1.0), (0.4, 0.6), (0.5, 0.5))


def test_flat_groups_are_filtered_and_the_easiest_come_first():
    """Groups below `min_reward_diff` carry no signal; the others are ranked by mean reward, highest first."""
    selection, state = chosen(GROUPS, config(initial_percentile=1.0))
    assert means(selection) == [0.9, 0.5, 0.1]
    assert selection.without_difference == (3,)
    assert (state.total_groups, state.included_groups) == (3, frozenset({0, 1, 2}))


def test_the_percentile_keeps_the_easiest_share_and_at_least_one():
    """Of n groups, ceil(n x percentile) are kept, never none."""
    assert means(chosen(GROUPS, config(initial_percentile=0.5))[0]) == [0.9, 0.5]
    assert means(chosen(GROUPS, config(initial_percentile=0.01))[0]) == [0.9]


def test_sort_ascending_begins_with_the_hardest():
    """`sort_ascending` reverses the ranking."""
    assert means(chosen(GROUPS, config(initial_percentile=0.3, sort_ascending=True))[0]) == [0.1]


def test_interval_k_expands_at_epochs_k_minus_1_and_every_k_after():
    """The first expansion is one epoch early, as in the guide's backends."""
    settings = config(initial_percentile=0.3, increment_percentile=0.2, expansion_interval=3)
    state, seen = begin(settings), []
    for epoch in range(9):
        selection, state = chosen(GROUPS, settings, epoch=epoch, state=state)
        seen.append((selection.expanded_from is not None, round(state.current_percentile, 6)))
    assert [epoch for epoch, (expanded, _) in enumerate(seen) if expanded] == [2, 5, 8]
    assert seen[-1] == (True, 0.9)


def test_an_interval_of_one_expands_at_once_and_stops_at_the_whole():
    """The percentile never exceeds 1, and a full curriculum does not expand."""
    settings = config(initial_percentile=0.9, increment_percentile=0.5, expansion_interval=1)
    first, state = chosen(GROUPS, settings, epoch=0)
    again, after = chosen(GROUPS, settings, epoch=1, state=state)
    assert (first.expanded_from, state.current_percentile) == (0.9, 1.0)
    assert (again.expanded_from, after.last_expansion_epoch) == (None, 0)


def test_random_subsample_caps_the_groups_after_the_variance_filter():
    """At most ceil(n x fraction) groups with signal are kept; the ranking stays."""
    selection, _ = chosen(GROUPS, config(initial_percentile=1.0, random_subsample=0.5))
    assert len(selection.groups) == 2
    assert means(selection) == sorted(means(selection), reverse=True)


def test_without_a_minimum_equal_groups_are_still_left_out():
    """Equal groups would rank first without a signal; they stay if the algorithm compares across groups."""
    groups, settings = groups_of((1.0, 1.0), (0.0, 0.2)), config(initial_percentile=0.5, min_reward_diff=0.0)
    assert means(chosen(groups, settings)[0]) == [0.1]
    selection, _ = select(groups, begin(settings), settings, epoch=0, rng=Random(0), across_groups=True)
    assert means(selection) == [1.0]


def test_a_single_group_is_subsampled_and_not_filtered():
    """A single group cannot be ranked; its trajectories are subsampled if configured."""
    group = groups_of((0.5,) * 5)
    assert chosen(group, config())[0].ranked == (0,)
    assert len(chosen(group, config())[0].groups[0]) == 5
    assert len(chosen(group, config(random_subsample=0.5))[0].groups[0]) == 3


@given(REWARDS, st.floats(0.01, 1), st.booleans(), st.none() | st.floats(0.01, 1))
def test_selection_only_ever_selects(rewards, percentile, ascending, fraction):
    """With any settings, selected groups are among the given ones, none twice, and inputs are unchanged."""
    given_groups = groups_of(*rewards)
    before = [list(group) for group in given_groups]
    settings = config(initial_percentile=percentile, sort_ascending=ascending, random_subsample=fraction)
    selection, state = chosen(given_groups, settings)
    kept = [id(t) for group in selection.groups for t in group]
    assert set(kept) <= {id(t) for group in given_groups for t in group}
    assert len(kept) == len(set(kept))
    assert given_groups == before
    assert 0 < state.current_percentile <= 1


def test_the_log_reports_the_expansion():
    """Users of the guide search for this line."""
    settings = config(initial_percentile=0.3, expansion_interval=1)
    selection, state = chosen(GROUPS, settings)
    lines = description(selection, state, epoch=0)
    assert lines[0] == "Expanding curriculum at epoch 1: 30% -> 50% of trajectory groups"
    assert lines[1].startswith("Curriculum learning at epoch 1: Using 2/3 groups (50%)")
    assert lines[2] == "Group reward distribution - Top: 0.9000, Median: 0.7000, Bottom: 0.5000"
