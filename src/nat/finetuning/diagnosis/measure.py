"""Take the evidence from the records of a run. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from nat.data_models.score import mean
from nat.finetuning.diagnosis.evidence import EASY, HARD, Evidence
from nat.finetuning.diagnosis.held_out import held_out_of
from nat.finetuning.diagnosis.trend import first_third, last_third, trend_of
from nat.finetuning.diagnosis.updates import updates_of, values_of
from nat.finetuning.metrics import metrics_of_rollouts
from nat.finetuning.rollout_statistics import ScoreSpread
from nat.runs.records import EpochRecord, ValidationRecord
from nat.runs.rollouts import RolloutRecord, RolloutTally, tally
from nat.wire.rewards import equal
from nat.wire.training import Compares

Metrics = Sequence[Mapping[str, float]]
"""Those of several epochs."""


@dataclass(frozen=True)
class Facts:
    """What a run's epochs do not say, taken from other records."""

    target_functions: Sequence[str] = ()
    target_model: str | None = None
    compares: Compares = "group"
    last_rollouts: Sequence[RolloutRecord] = ()
    """Those of the last epoch that was played."""
    unfinished: bool = False
    """True if that epoch has no record, because the run ended in it."""
    validations: Sequence[ValidationRecord] = ()
    unseen_words: float | None = None
    usual_unseen: float | None = None


_NO_FACTS = Facts()


def evidence_of(epochs: Sequence[EpochRecord], facts: Facts = _NO_FACTS) -> Evidence:
    """Gather the numbers; without facts, those that the epochs alone have."""
    last, first = tally(facts.last_rollouts), first_third(epochs)
    metrics, counts, left_out = _of_rollouts(epochs, facts, last)
    calls = sum(own.get("rollout/calls", 0.0) * count for own, count in zip(metrics, counts, strict=True)) or 1.0
    failures = [each for each in last.failures if each.error]
    options = Counter({how: count for (_, how), count in last.untrainable.items()})
    generations = fmean(e.num_trajectories / max(1, e.num_groups) for e in epochs) if epochs else 0.0
    compared = generations > 1  # a group of one has no difference, whatever its score
    lowest = min((e.min_reward for e in epochs), default=None)
    highest = max((e.max_reward for e in epochs), default=None)
    return Evidence(
        num_epochs=len(epochs),
        num_rollouts=sum(counts),
        played=not epochs or any(epoch.played for epoch in epochs),
        left_out={cause: count / sum(counts) for cause, count in left_out.items()},
        error=str(failures[0]) if failures else None,
        functions=last.functions,
        models=last.models,
        target_functions=facts.target_functions,
        target_model=facts.target_model,
        without_calls=_mean(metrics, "rollout/without_calls") or 0.0,
        without_logprobs=_total(metrics, "drift/calls_without_logprobs") / calls,
        untrainable_calls=_total(metrics, "drift/untrainable_calls") / calls,
        untempered_calls=_total(metrics, "drift/untempered_calls") / calls,
        sampling=options.most_common(1)[0][0] if options else None,
        trained_tokens=_mean(metrics, "rollout/trained_tokens"),
        generations=generations,
        compares=facts.compares,
        num_examples=len({example for e in epochs for example in e.examples}),
        lowest=lowest,
        highest=highest,
        truncated=_mean(metrics, "rollout/truncated") or 0.0,
        truncated_lowest=_mean(metrics, "reward/truncated_lowest") or 0.0,
        equal_outputs=_mean([e.metrics for e in first], "rollout/equal_outputs") or 0.0,
        equal_groups=fmean(e.share_without_difference for e in epochs) if compared else 0.0,
        equal_between=_equal_between(epochs) if compared else 0.0,
        outside_curriculum=_share_missing(
            (e.num_groups - e.groups_without_difference for e in epochs), (e.filtered_groups for e in epochs)
        ),
        untrained=_share_missing((e.filtered_groups for e in epochs), (e.trained_groups for e in epochs)),
        hard=_share_of_examples(epochs, lambda score: score < HARD, lowest, highest),
        easy=_share_of_examples(first, lambda score: score > EASY, lowest, highest),
        spread=_spread(metrics, "reward/repeats", "reward/repeat_variance"),
        row_spread=_spread(metrics, "reward/row_repeats", "reward/row_repeat_variance"),
        length_correlation=_mean(metrics, "reward/length_correlation"),
        tokens=_tokens(epochs),
        relative=any(e.relative for e in epochs),
        trend=None if any(e.relative for e in epochs) else trend_of(epochs),
        updates=updates_of(epochs),
        held_out=held_out_of(epochs, facts.validations, facts.unseen_words, facts.usual_unseen),
    )


def _of_rollouts(
    epochs: Sequence[EpochRecord], facts: Facts, last: RolloutTally
) -> tuple[Metrics, list[int], Counter[str]]:
    """Metrics and number of the rollouts of each epoch, and why they were left out; the unfinished epoch included."""
    metrics, counts = [e.metrics for e in epochs], [e.num_rollouts or e.num_trajectories for e in epochs]
    left_out = sum((Counter(e.left_out) for e in epochs), Counter[str]())
    if facts.unfinished:
        metrics.append(metrics_of_rollouts(facts.last_rollouts))
        counts.append(last.num_rollouts)
        left_out.update({str(cause): count for cause, count in last.causes.items()})
    return metrics, counts, left_out


def _mean(metrics: Metrics, name: str) -> float | None:
    found = values_of(metrics, name)
    return fmean(found) if found else None


def _total(metrics: Metrics, name: str) -> float:
    return sum(values_of(metrics, name))


def _spread(metrics: Metrics, repeats: str, variance: str) -> ScoreSpread:
    total = ScoreSpread()
    for own in metrics:
        compared, count = round(own.get("reward/compared", 0)), round(own.get(repeats, 0))
        squares = compared * own.get("reward/example_variance", 0.0)
        total += ScoreSpread(compared, squares, count, count * own.get(variance, 0.0))
    return total


def _share_missing(of: Iterable[int], rest: Iterable[int]) -> float:
    total = sum(of)
    return max(0.0, 1 - sum(rest) / total) if total else 0.0


def _equal_between(epochs: Sequence[EpochRecord]) -> float:
    names = ("reward/equal_groups_lowest", "reward/equal_groups_highest")
    shares = [
        max(0.0, e.metrics["reward/equal_groups"] - sum(e.metrics[name] for name in names))
        for e in epochs
        if e.metrics.keys() >= {"reward/equal_groups", *names}
    ]
    return fmean(shares) if shares else 0.0


def _share_of_examples(
    epochs: Sequence[EpochRecord],
    test: Callable[[float], bool],
    lowest: float | None,
    highest: float | None,
) -> float:
    """Share of the examples whose mean score, as a share of the way from lowest to highest, passes the test.

    If all scores are equal, 0 counts as the lowest and everything from 1 on as the highest.
    """
    scores: dict[str, list[float]] = {}
    for epoch in epochs:
        for example, score in epoch.examples.items():
            scores.setdefault(example, []).append(score)
    if lowest is None or highest is None or not scores:
        return 0.0
    base, top = (min(0.0, lowest), max(1.0, highest)) if equal([lowest, highest]) else (lowest, highest)
    return fmean(test((mean(own) - base) / (top - base)) for own in scores.values())


def _tokens(epochs: Sequence[EpochRecord]) -> tuple[float, float] | None:
    parts = ([e.metrics for e in part] for part in (first_third(epochs), last_third(epochs)))
    before, after = (_mean(part, "rollout/completion_tokens") for part in parts)
    return None if before is None or after is None else (before, after)
