"""What to try after a run that showed no improvement, from the numbers of its epochs. Pure."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, variance

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis import RAISE_LIMIT, RATE, TRUNCATED, diagnose_fall
from nat.runs.records import EpochRecord, Verdict

_STANDARD_ERRORS = 2.0
"""A rise of the mean reward by less than this many standard errors may be chance."""
_LEAST_TO_COMPARE = 2
"""Epochs in a third of the run; of fewer, no spread is known."""


def next_step(verdict: Verdict | None, epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    """A few sentences; None for a model that improved, and where nothing stands out."""
    if verdict is Verdict.IMPROVED or not epochs:
        return None
    if verdict is Verdict.WORSE and (found := diagnose_fall(epochs)):
        return f"{found.seen} {found.remedy}"
    if few := _few_signals(epochs, config):
        return few
    return " ".join(filter(None, (_cut_off(epochs, config), _by_reward(verdict, epochs)))) or None


def _few_signals(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    share = fmean(epoch.share_without_difference for epoch in epochs)
    if share <= config.max_equal_groups:
        return None
    untrained = sum(epoch.trained_groups == 0 for epoch in epochs)
    also = f", and {untrained} of {len(epochs)} epochs trained nothing" if untrained else ""
    return (
        f"{share:.0%} of the groups had equal rewards{also}. Choose examples that are sometimes solved and sometimes "
        "not, give partial credit, or raise num_generations."
    )


def _cut_off(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    shares = [epoch.metrics[TRUNCATED] for epoch in epochs if TRUNCATED in epoch.metrics]
    if not shares or fmean(shares) <= config.max_truncated:
        return None
    return (
        f"{fmean(shares):.0%} of the rollouts hit a token limit: their rewards say little about what the model meant. "
        f"{RAISE_LIMIT}"
    )


def _by_reward(verdict: Verdict | None, epochs: Sequence[EpochRecord]) -> str | None:
    """The reward in training tells a run that did not learn from one that learned its own examples."""
    third = len(epochs) // 3
    if third < _LEAST_TO_COMPARE:
        return f"{len(epochs)} {'epoch is' if len(epochs) == 1 else 'epochs are'} few: raise finetuning.num_epochs."
    first, last = ([e.avg_reward for e in part] for part in (epochs[:third], epochs[-third:]))
    before, after = fmean(first), fmean(last)
    rewards = f"{before:.3f} in the first third of the epochs, {after:.3f} in the last"
    if after - before > _STANDARD_ERRORS * sqrt((variance(first) + variance(last)) / third):
        return None if verdict is None else f"The reward in training rose ({rewards}). {_REMEDY[verdict]}"
    rate = max((epoch.metrics.get(RATE, 0.0) for epoch in epochs), default=0.0)
    used = f" ({rate:.2g} was used; try {3 * rate:.1g})" if rate else ""
    return f"The reward in training did not rise ({rewards}). Train longer, or raise the learning rate{used}."


_REMEDY = {
    Verdict.NOT_SHOWN: "Use more held-out examples, which show smaller differences, and train longer.",
    Verdict.WORSE: "The model learns its own examples, or a flaw of the evaluator: read its held-out answers in "
    "trajectories/, and train on more examples.",
}
