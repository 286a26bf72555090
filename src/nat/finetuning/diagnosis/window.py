"""Some epochs of a run in numbers, by which conditions are judged; shares are from 0 to 1. Pure.

What the records do not have is None: a backend need not report all metrics. The rewards of a file say nothing of the
model, so a run that trained on one has no score that is constant, noisy or equal.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.change import Change, change, first_third, last_third
from nat.finetuning.metrics import metrics_of_rollouts
from nat.finetuning.verdict import Comparison, compare_validations
from nat.runs.records import EpochRecord, ValidationRecord, Verdict
from nat.runs.rollouts import LeftOutCause, RolloutRecord, RolloutTally, tally
from nat.wire.rewards import equal
from nat.wire.training import Compares

HARD, EASY = 0.05, 0.95
"""Mean scores, as shares of the way from the lowest to the highest. At .05, half of the groups of sixteen rollouts have
no success, and sixteen is the most that common practice recommends where success is rare."""
LEARNED = 0.2
"""Share of the distance from the first mean score to the highest that a run must gain to have learned. In
examples/tic_tac_toe it is passed after 6 of 60 epochs."""
MIN_REPEATS = 30
"""Repeated outputs below which the noise of a score is unknown: the relative error of a variance from n repeats is
√(2/n), here 26 %."""


@dataclass(frozen=True)
class Window:
    """All epochs of a run for its diagnosis, the last ones for a warning, or the one of a probe."""

    epochs: Sequence[EpochRecord] = ()
    before: Sequence[EpochRecord] = ()
    """Earlier epochs, with which these are compared."""
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    compares: Compares = "group"
    rollouts: Sequence[RolloutRecord] = ()
    """Those of the last epoch that was played."""
    unfinished: bool = False
    """True if that epoch has no record, because the run ended in it."""
    ended: bool = True
    """False if the run goes on, so that it cannot be too short."""
    since_best: bool = False
    """True if something has gone wrong since the first of the epochs, which has the best reward."""
    validations: Sequence[ValidationRecord] = ()
    target_functions: Sequence[str] = ()
    target_model: str | None = None

    @cached_property
    def run(self) -> Sequence[EpochRecord]:
        """These epochs and those before."""
        return (*self.before, *self.epochs)

    @cached_property
    def last(self) -> RolloutTally:
        """The rollouts of the last epoch."""
        return tally(self.rollouts)

    @property
    def played(self) -> bool:
        """False if the run trained on a file."""
        return not self.epochs or any(epoch.played for epoch in self.epochs)

    # Rollouts and metrics

    @cached_property
    def metrics(self) -> Sequence[Mapping[str, float]]:
        """Those of each epoch, the unfinished one included."""
        unfinished = [metrics_of_rollouts(self.rollouts)] if self.unfinished else []
        return [*(epoch.metrics for epoch in self.epochs), *unfinished]

    @cached_property
    def counts(self) -> Sequence[int]:
        """Rollouts of each epoch, likewise."""
        unfinished = [self.last.num_rollouts] if self.unfinished else []
        return [*(epoch.num_rollouts or epoch.num_trajectories for epoch in self.epochs), *unfinished]

    def left_out(self, *causes: LeftOutCause) -> float:
        """Share of the rollouts that were left out for these causes."""
        found = Counter({str(each): count for each, count in self.last.causes.items()} if self.unfinished else {})
        for epoch in self.epochs:
            found.update(epoch.left_out)
        return sum(found[cause] for cause in causes) / (sum(self.counts) or 1)

    def values(self, name: str) -> list[float]:
        """The metric's values, where it is reported."""
        return [own[name] for own in self.metrics if name in own]

    def mean(self, name: str) -> float | None:
        """The mean of the metric over the epochs that report it."""
        found = self.values(name)
        return fmean(found) if found else None

    @property
    def calls(self) -> float:
        """All calls of the epochs."""
        return sum(own.get("rollout/calls", 0.0) * count for own, count in zip(self.metrics, self.counts, strict=True))

    def per_call(self, name: str) -> float:
        """A metric that counts calls, as a share of all calls."""
        return sum(self.values(name)) / (self.calls or 1.0)

    # Scores

    def noise(self, of: str = "") -> float | None:
        """Share of the score's variance that rollouts with equal answers have, too; of `row_`, with equal rows.

        None with too few repeats, or without any variance.
        """

        def squares(count: str, variance: str) -> float:
            return sum(own.get(count, 0.0) * own.get(variance, 0.0) for own in self.metrics)

        compared, repeats = sum(self.values("reward/compared")), sum(self.values(f"reward/{of}repeats"))
        total = squares("reward/compared", "reward/example_variance")
        if not self.played or repeats < MIN_REPEATS or total <= 0:
            return None
        of_repeats = squares(f"reward/{of}repeats", f"reward/{of}repeat_variance")
        return min(1.0, (of_repeats / repeats) / (total / compared))

    @property
    def lowest(self) -> float:
        return min((epoch.min_reward for epoch in self.epochs), default=0.0)

    @property
    def highest(self) -> float:
        return max((epoch.max_reward for epoch in self.epochs), default=0.0)

    @property
    def constant(self) -> bool:
        """True if every score is the same number."""
        return self.played and bool(self.epochs) and equal([self.lowest, self.highest])

    @cached_property
    def equal_groups(self) -> float:
        """Share of the groups whose rewards have nothing to be compared with; a group of one has no difference."""
        groups = [
            epoch for epoch in self.epochs if self.compares == "batch" or epoch.num_trajectories > epoch.num_groups
        ]
        return fmean(share_of_equal(epoch, self.compares) for epoch in groups) if groups else 0.0

    @cached_property
    def hard(self) -> float:
        """Share of the examples whose mean score is below `HARD`, over all epochs."""
        return self._share_of_examples(self.epochs, lambda height: height < HARD)

    @cached_property
    def easy(self) -> float:
        """Share of the examples whose mean score is above `EASY`, in the first third of the epochs."""
        return self._share_of_examples(first_third(self.epochs), lambda height: height > EASY)

    def height(self, score: float) -> float:
        """The score as a share of the way from the lowest to the highest.

        If all scores are equal, 0 counts as the lowest and everything from 1 on as the highest.
        """
        base, top = self.lowest, self.highest
        if equal([base, top]):
            base, top = min(0.0, base), max(1.0, top)
        return (score - base) / (top - base)

    def _share_of_examples(self, epochs: Sequence[EpochRecord], test: Callable[[float], bool]) -> float:
        """Share of the examples the height of whose mean passes the test; one group alone tells nothing of them."""
        scores: dict[str, list[float]] = {}
        for epoch in epochs:
            for example, score in epoch.examples.items():
                scores.setdefault(example, []).append(score)
        if not scores or all(epoch.num_groups <= 1 for epoch in self.epochs):
            return 0.0
        return fmean(test(self.height(fmean(own))) for own in scores.values())

    # Learning

    @cached_property
    def updated(self) -> Sequence[EpochRecord]:
        """The epochs that changed the weights."""
        return [epoch for epoch in self.epochs if epoch.trained_groups and epoch.filtered_groups]

    @cached_property
    def change(self) -> Change | None:
        """How the reward changed over the run; None where one epoch, relative scores or a file cannot show it."""
        if len(self.run) < 2 or not self.played or any(epoch.relative for epoch in self.run):
            return None
        return change(first_third(self.run), last_third(self.epochs))

    @cached_property
    def held_out(self) -> Comparison | None:
        """The first validation against the last; None without two that share an example."""
        scored = sorted((v for v in self.validations if v.rewards), key=lambda record: record.epoch)
        return compare_validations(scored[0], scored[-1]) if len(scored) > 1 else None

    @property
    def gained(self) -> bool:
        """True if the reward in training rose by more than chance, and by a fair part of what was possible."""
        if self.change is None or self.change.after <= self.run[0].avg_reward:  # it rose from its own fall only
            return False
        highest = max(epoch.max_reward for epoch in self.run)
        return self.change.rose and self.change.gain >= LEARNED * (highest - self.change.before)

    @property
    def learned(self) -> bool:
        """True if the training reward gained, or the held-out score is shown to have risen by as fair a part.

        The rewards of a file, and relative scores, do not show how much was possible.
        """
        held_out = self.held_out
        if held_out is None or held_out.verdict is not Verdict.IMPROVED:
            return self.gained
        fair = held_out.difference >= LEARNED * (self.highest - held_out.before)
        return self.gained or self.change is None or (fair and self.change.after > self.run[0].avg_reward)

    @property
    def could_fall(self) -> bool:
        """False if the mean reward was the worst score from the start, unless something has gone wrong since."""
        run = self.run
        return self.since_best or (bool(run) and max(e.avg_reward for e in run) > min(e.min_reward for e in run))

    @property
    def fallen(self) -> bool:
        """True if the mean reward is far below its best in the run."""
        if not self.run:
            return False
        best, worst = max(self.run, key=lambda e: e.avg_reward), min(e.min_reward for e in self.run)
        return change([best], self.run[-1:]).collapsed(worst, self.guards.collapse_share)


def share_of_equal(epoch: EpochRecord, compares: Compares) -> float:
    """Share of the epoch's groups whose rewards have nothing to be compared with.

    For an algorithm that compares rewards of the whole batch (`reinforce_pp`), groups of equal rewards carry a signal
    if the groups differ.
    """
    share = epoch.share_without_difference
    if compares == "batch":
        return float(share == 1 and equal([epoch.min_reward, epoch.max_reward]))
    return share
