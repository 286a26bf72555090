"""Some epochs of a run in numbers, by which conditions are judged; shares are from 0 to 1. Pure.

What the records do not have is None: a backend need not report all metrics.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from statistics import fmean

from nat.data_models.finetuning import GuardsConfig
from nat.data_models.score import mean
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.trend import LEARNED, Trend, change, first_third, last_third, trend_of
from nat.finetuning.metrics import metrics_of_rollouts
from nat.finetuning.rollout_statistics import ScoreSpread
from nat.finetuning.verdict import Comparison, compare
from nat.runs.records import EpochRecord, ValidationRecord, Verdict
from nat.runs.rollouts import LeftOutCause, RolloutTally, tally
from nat.runs.shortened import ShortenedUpdates, shortened_updates
from nat.runs.waiting import Waiting, waiting_of
from nat.wire.rewards import equal
from nat.wire.training import Compares

HARD, HALF, EASY = 0.05, 0.5, 0.95
"""Mean scores, as shares of the way from the lowest to the highest. At .05, half of the groups of sixteen rollouts have
no success, and sixteen is the most that common practice recommends where success is rare."""
LIKELY_CHANCE = 1.0
"""Standard errors by which different answers differ more in score than equal ones: below, chance explains it better
than a noisy score does."""
NEAR = 0.1
"""Share of the span of all rewards: a mean so near the highest reward has little left to gain."""


@dataclass(frozen=True)
class Window:
    """All epochs of a run for its diagnosis, the last ones for a warning, or the one of a probe."""

    epochs: Sequence[EpochRecord] = ()
    before: Sequence[EpochRecord] = ()
    """Earlier epochs, with which these are compared."""
    facts: Facts = field(default_factory=Facts)
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    since_best: bool = False
    """True if something has gone wrong since the first of the epochs, which has the best reward."""

    @cached_property
    def run(self) -> Sequence[EpochRecord]:
        """These epochs and those before."""
        return (*self.before, *self.epochs)

    @cached_property
    def last(self) -> RolloutTally:
        """The rollouts of the last epoch."""
        return tally(self.facts.last_rollouts)

    @property
    def played(self) -> bool:
        """False if the run trained on a file, so that its rewards do not tell how good the model is."""
        return not self.epochs or any(epoch.played for epoch in self.epochs)

    @cached_property
    def metrics(self) -> Sequence[Mapping[str, float]]:
        """Those of each epoch, the unfinished one included."""
        unfinished = [metrics_of_rollouts(self.facts.last_rollouts)] if self.facts.unfinished else []
        return [*(epoch.metrics for epoch in self.epochs), *unfinished]

    @cached_property
    def counts(self) -> Sequence[int]:
        """Rollouts of each epoch, likewise."""
        unfinished = [self.last.num_rollouts] if self.facts.unfinished else []
        return [*(epoch.num_rollouts or epoch.num_trajectories for epoch in self.epochs), *unfinished]

    def left_out(self, *causes: LeftOutCause) -> float:
        """Share of the rollouts that were left out for these causes."""
        found = Counter({str(each): count for each, count in self.last.causes.items()} if self.facts.unfinished else {})
        for epoch in self.epochs:
            found.update(epoch.left_out)
        return sum(found[cause] for cause in causes) / (sum(self.counts) or 1)

    def values(self, name: str) -> list[float]:
        """The metric's values, where it is reported."""
        return [own[name] for own in self.metrics if name in own]

    def mean(self, name: str) -> float | None:
        """The mean of the metric over the epochs."""
        found = self.values(name)
        return fmean(found) if found else None

    def where_reported(self, name: str) -> float:
        """The mean over the epochs of a metric that is left out where it is zero."""
        return sum(self.values(name)) / (len(self.metrics) or 1)

    @property
    def calls(self) -> float:
        """All calls of the epochs."""
        return sum(own.get("rollout/calls", 0.0) * count for own, count in zip(self.metrics, self.counts, strict=True))

    def per_call(self, name: str) -> float:
        """A metric that counts calls, as a share of all calls."""
        return sum(self.values(name)) / (self.calls or 1.0)

    @cached_property
    def spread(self) -> ScoreSpread:
        """The spread of the scores; rollouts are equal if their answers are."""
        return self._spread("reward/repeats", "reward/repeat_variance")

    @cached_property
    def row_spread(self) -> ScoreSpread:
        """The same; rollouts are equal if their training rows are."""
        return self._spread("reward/row_repeats", "reward/row_repeat_variance")

    @property
    def score_is_chance(self) -> bool:
        """True if different answers differ no more in score than equal ones do."""
        return self.spread.noise_share is not None and self.spread.dependence < LIKELY_CHANCE

    def _spread(self, repeats: str, variance: str) -> ScoreSpread:
        total = ScoreSpread()
        for own in self.metrics:
            compared, count = round(own.get("reward/compared", 0)), round(own.get(repeats, 0))
            squares = compared * own.get("reward/example_variance", 0.0)
            total += ScoreSpread(compared, squares, count, count * own.get(variance, 0.0))
        return total

    @property
    def generations(self) -> float:
        """Scored rollouts per example and epoch."""
        return fmean(e.num_trajectories / max(1, e.num_groups) for e in self.epochs) if self.epochs else 0.0

    @property
    def lowest(self) -> float | None:
        return min((epoch.min_reward for epoch in self.epochs), default=None)

    @property
    def highest(self) -> float | None:
        return max((epoch.max_reward for epoch in self.epochs), default=None)

    @property
    def constant(self) -> bool:
        """True if every score is the same number."""
        return bool(self.epochs) and equal([x for x in (self.lowest, self.highest) if x is not None])

    @property
    def several(self) -> bool:
        """True if an epoch has several groups, so that a share of them says something."""
        return any(epoch.num_groups > 1 for epoch in self.epochs)

    @cached_property
    def equal_groups(self) -> float:
        """Share of the groups whose rewards have nothing to be compared with."""
        if self.generations <= 1 and self.facts.compares != "batch":
            return 0.0  # a group of one has no difference, whatever its score
        return fmean(share_of_equal(epoch, self.facts.compares) for epoch in self.epochs) if self.epochs else 0.0

    @cached_property
    def equal_between(self) -> float:
        """Share of the groups with equal scores that are neither the lowest nor the highest."""
        names = ("reward/equal_groups_lowest", "reward/equal_groups_highest")
        shares = [
            max(0.0, own["reward/equal_groups"] - sum(own[name] for name in names))
            for own in self.metrics
            if own.keys() >= {"reward/equal_groups", *names}
        ]
        return fmean(shares) if shares and self.equal_groups else 0.0

    @cached_property
    def hard(self) -> float:
        """Share of the examples whose mean score is below `HARD`, over all epochs."""
        nearer = self.constant and self.facts.references is not None
        return self._share_of_examples(self.epochs, lambda height: height < HARD or (nearer and height <= HALF))

    @cached_property
    def easy(self) -> float:
        """Share of the examples whose mean score is above `EASY`, in the first third of the epochs."""
        nearer = self.constant and self.facts.references is not None
        return self._share_of_examples(
            first_third(self.epochs), lambda height: height > EASY or (nearer and height > HALF)
        )

    def _share_of_examples(self, epochs: Sequence[EpochRecord], test: Callable[[float], bool]) -> float:
        """Share of the examples whose mean score, as a share of the way from lowest to highest, passes the test.

        If all scores are equal, the scale is that of the dataset's own answers, if they have been scored; else 0
        counts as the lowest and everything from 1 on as the highest.
        """
        scores: dict[str, list[float]] = {}
        for epoch in epochs:
            for example, score in epoch.examples.items():
                scores.setdefault(example, []).append(score)
        base, top = self.lowest, self.highest
        if base is None or top is None or not scores or not self.several:
            return 0.0
        if self.constant:
            known = self.facts.references
            base, top = (min(0.0, base), max(1.0, top)) if known is None else (known.wrong, known.right)
        return fmean(test((mean(own) - base) / (top - base)) for own in scores.values()) if top != base else 0.0

    @cached_property
    def updated(self) -> Sequence[EpochRecord]:
        """The epochs that changed the weights."""
        return [epoch for epoch in self.epochs if epoch.trained_groups and epoch.filtered_groups]

    @property
    def optimizer_steps(self) -> int:
        return round(max(1.0, sum(e.metrics.get("train/optimizer_steps", 1.0) for e in self.updated)))

    @cached_property
    def shortened(self) -> ShortenedUpdates | None:
        """The updates that `max_kl` shortened."""
        return shortened_updates(epoch.metrics for epoch in self.updated)

    @property
    def waiting(self) -> Waiting | None:
        """How long rollouts and learner waited for each other."""
        return waiting_of(epoch.metrics for epoch in self.epochs)

    @cached_property
    def relative(self) -> bool:
        """True if the scores in training compare generations, so that they cannot show whether the model learns."""
        return any(epoch.relative for epoch in self.epochs)

    @cached_property
    def trend(self) -> Trend | None:
        """Whether the reward rose inside the window."""
        return None if self.relative else trend_of(self.epochs)

    @cached_property
    def scored(self) -> Sequence[ValidationRecord]:
        """The validations that have scores, in order."""
        return sorted((v for v in self.facts.validations if v.rewards), key=attrgetter("epoch"))

    @cached_property
    def held_out(self) -> Comparison | None:
        """The first validation against the last; None without two that share an example."""
        if len(self.scored) < 2:
            return None
        before, after = self.scored[0].distinct, self.scored[-1].distinct
        first, last = ({key for key, score in each.items() if score is not None} for each in (before, after))
        return compare(before, after) if first & last else None

    @property
    def improved(self) -> bool:
        """True if the held-out score is shown to have risen."""
        return self.held_out is not None and self.held_out.verdict is Verdict.IMPROVED

    @property
    def has_learned(self) -> bool:
        """True if the training reward or the held-out score rose by a fair part of what was possible.

        With relative scores, the held-out score must have risen, or there is none.
        """
        if not self.played:
            return self.improved
        if self.relative:
            return self.held_out is None or self.improved
        if self.trend is None:
            return False
        if self.trend.after <= self.epochs[0].avg_reward:
            return False  # it rose after a fall only
        possible = self.trend.highest - (self.held_out.before if self.held_out else 0.0)
        shown = self.held_out is not None and self.improved and self.held_out.difference >= LEARNED * possible
        return shown or self.trend.learned

    @property
    def goes_well(self) -> bool:
        """True if the reward rises in these epochs, or has risen and is near the highest one of the run.

        A model that has learned what to do is surer of it, and its groups are equal. One epoch alone shows no rise.
        """
        if self.trend is None:
            return False
        top = max(epoch.max_reward for epoch in self.run)
        near = NEAR * (top - min(epoch.min_reward for epoch in self.run))
        so_far = change(self.run[: self.guards.collapse_epochs], last_third(self.epochs))
        return self.trend.rose or (so_far.rose and top - so_far.after <= near <= so_far.gain)

    @property
    def has_fallen(self) -> bool:
        """True if the mean reward is far below its best in the run, measured from the worst reward seen."""
        if not self.run:
            return False
        worst = min(epoch.min_reward for epoch in self.run)
        fall = change([max(self.run, key=lambda epoch: epoch.avg_reward)], self.run[-1:])
        return fall.fell and fall.after - worst < self.guards.collapse_share * (fall.before - worst)


def share_of_equal(epoch: EpochRecord, compares: Compares) -> float:
    """Share of the epoch's groups whose rewards have nothing to be compared with.

    For an algorithm that compares rewards of the whole batch (`reinforce_pp`), groups of equal rewards carry a signal
    if the groups differ.
    """
    share = epoch.share_without_difference
    if compares == "batch":
        return float(share == 1 and equal([epoch.min_reward, epoch.max_reward]))
    return share


def share_missing(of: Iterable[int], rest: Iterable[int]) -> float:
    """The share of a total that the rest lacks."""
    total = sum(of)
    return max(0.0, 1 - sum(rest) / total) if total else 0.0
