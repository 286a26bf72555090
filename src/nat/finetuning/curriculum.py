"""Choose which trajectory groups an epoch trains on, easiest first.

Pure: the trainer passes the state and the random generator in, and keeps the state that comes back.
"""

import math
from collections.abc import Sequence
from random import Random
from statistics import median

from pydantic import BaseModel, ConfigDict

from nat.data_models.finetuning import CurriculumLearningConfig, Trajectory
from nat.finetuning.trajectories.groups import has_signal, mean_reward
from nat.runs.records import epoch_number


class CurriculumState(BaseModel):
    """The state that the curriculum keeps from epoch to epoch."""

    model_config = ConfigDict(frozen=True)

    current_percentile: float
    """Share of the groups to train on, easiest first."""
    last_expansion_epoch: int = -1
    total_groups: int = 0
    """Groups with a learning signal in the first epoch that had any."""
    included_groups: frozenset[int] = frozenset()
    """The groups chosen last, as indices into the epoch's list."""


class CurriculumSelection(BaseModel):
    """The chosen groups, and the indices of the ranked and the flat ones in the epoch's list."""

    model_config = ConfigDict(frozen=True)

    groups: list[list[Trajectory]]
    """The groups to train on, easiest first."""
    ranked: tuple[int, ...] = ()
    """All groups with enough difference in reward, easiest first."""
    without_difference: tuple[int, ...] = ()
    expanded_from: float | None = None
    """The percentile before this epoch widened it; None if it did not."""


def select(
    groups: Sequence[list[Trajectory]],
    state: CurriculumState,
    config: CurriculumLearningConfig,
    *,
    epoch: int,
    rng: Random,
    across_groups: bool = False,
) -> tuple[CurriculumSelection, CurriculumState]:
    """Keep the easiest groups that still carry a learning signal.

    With `across_groups`, groups of equal rewards carry one too, and only `min_reward_diff` drops them.
    """
    if len(groups) == 1:
        return _within_one_group(groups[0], config, rng), state
    least = config.min_reward_diff
    keep_all = across_groups and least == 0
    flat = () if keep_all else tuple(i for i, group in enumerate(groups) if not has_signal(group, least))
    alive = [i for i in range(len(groups)) if i not in set(flat)]
    if not alive:
        return CurriculumSelection(groups=[], without_difference=flat), state
    ranked = sorted(alive, key=lambda i: mean_reward(groups[i]), reverse=not config.sort_ascending)
    widened = _widened(state, config, epoch)
    chosen = ranked[: _share(len(ranked), widened.current_percentile)]
    chosen = _subsample(chosen, config.random_subsample, of=len(ranked), rng=rng)
    selection = CurriculumSelection(
        groups=[list(groups[i]) for i in chosen],
        ranked=tuple(ranked),
        without_difference=flat,
        expanded_from=state.current_percentile if widened is not state else None,
    )
    remembered = {"total_groups": state.total_groups or len(ranked), "included_groups": frozenset(chosen)}
    return selection, widened.model_copy(update=remembered)


def _within_one_group(group: list[Trajectory], config: CurriculumLearningConfig, rng: Random) -> CurriculumSelection:
    """A single group is not ranked; `random_subsample` applies to its trajectories."""
    kept = _subsample(list(range(len(group))), config.random_subsample, of=len(group), rng=rng)
    return CurriculumSelection(groups=[[group[i] for i in kept]], ranked=(0,))


def _widened(state: CurriculumState, config: CurriculumLearningConfig, epoch: int) -> CurriculumState:
    due = epoch - state.last_expansion_epoch >= config.expansion_interval
    if not due or state.current_percentile >= 1:
        return state
    percentile = min(1.0, state.current_percentile + config.increment_percentile)
    return state.model_copy(update={"current_percentile": percentile, "last_expansion_epoch": epoch})


def _subsample(chosen: list[int], fraction: float | None, *, of: int, rng: Random) -> list[int]:
    """A random sample of at most that fraction of `of`, in the original order."""
    if fraction is None or len(chosen) <= _share(of, fraction):
        return chosen
    drawn = set(rng.sample(chosen, _share(of, fraction)))
    return [i for i in chosen if i in drawn]


def _share(count: int, fraction: float) -> int:
    """Rounded up, at least one; the inner rounding corrects sums like 0.1 + 0.2."""
    return max(1, math.ceil(round(count * fraction, 9)))


def description(selection: CurriculumSelection, state: CurriculumState, *, epoch: int) -> list[str]:
    """Lines for the log, in which epochs count from 1."""
    flat, ranked = len(selection.without_difference), len(selection.ranked)
    if not ranked:
        return [
            f"Curriculum learning at epoch {epoch_number(epoch)}: none of {flat} groups has enough difference in reward"
        ]
    lines = []
    if selection.expanded_from is not None:
        lines.append(
            f"Expanding curriculum at epoch {epoch_number(epoch)}: {selection.expanded_from:.0%} -> "
            f"{state.current_percentile:.0%} of trajectory groups"
        )
    lines.append(
        f"Curriculum learning at epoch {epoch_number(epoch)}: Using {len(selection.groups)}/{ranked} groups "
        f"({state.current_percentile:.0%}), {flat} without enough difference in reward"
    )
    means = sorted((mean_reward(group) for group in selection.groups), reverse=True)
    lines.append(
        f"Group reward distribution - Top: {means[0]:.4f}, Median: {median(means):.4f}, Bottom: {means[-1]:.4f}"
    )
    return lines
