"""Charts as values: what a page draws, says in a sentence, and lists in a table. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from nat.data_models.score import interval, is_score, mean
from nat.runs.outcomes import Bin
from nat.runs.records import (
    EpochRecord,
    ValidationRecord,
    after_epoch,
    epoch_number,
    played_epochs,
    same_examples,
    score_range,
    scores_beside,
)

T = TypeVar("T")
Values = Sequence[float | None]

_TABLE_ROWS = 40
"""Rows of a chart's table; those of a long run are spread evenly."""
_POINTS = 1000
"""Points of a curve; those of a longer run are spread evenly."""


class Mark(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    POINTS = "points"
    """A line with a point at each value."""
    BARS = "bars"


@dataclass(frozen=True)
class Series:
    """One value for each x; None where it has none."""

    label: str
    values: Values
    mark: Mark = Mark.LINE
    low: Values = ()
    """Lower ends of intervals, if it has them."""
    high: Values = ()


@dataclass(frozen=True)
class Chart:
    """A chart, and what a reader who does not see it gets instead."""

    title: str
    summary: str
    """What the picture shows, in a sentence."""
    x_label: str
    x: Sequence[float]
    series: Sequence[Series]
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    """The numbers as a table."""
    y_range: tuple[float, float] | None = None
    links: Sequence[str] = field(default=())
    """Where a click on each x leads."""


def spread(items: Sequence[T], most: int = _TABLE_ROWS) -> Sequence[T]:
    """At most so many items, evenly spread, with the first and the last."""
    if len(items) <= most:
        return items
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def reward_chart(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord]) -> Chart | None:
    """Mean reward of each epoch, and the held-out scores with 95 % intervals; None without any."""
    trained = {epoch_number(epoch.epoch): epoch.avg_reward for epoch in spread(played_epochs(epochs), _POINTS)}
    scores = spread([*zip(validations, same_examples(validations), strict=True)], _POINTS)
    scored = {record.epoch: [*own.values()] for record, own in scores if own}
    means = {at: mean(own) for at, own in scored.items()}
    ends = {at: interval(own, *score_range(own)) for at, own in scored.items()}
    beside = scores_beside(spread(played_epochs(epochs), _POINTS))
    x = sorted(trained.keys() | means.keys())
    if not x:
        return None
    series = [Series("training", [trained.get(at) for at in x], Mark.LINE)] if trained else []
    if means:
        lows, highs = ([ends[at][end] if at in ends else None for at in x] for end in (0, 1))
        failed = ", failed ones as the lowest" if any(record.num_failed for record in validations) else ""
        series.append(Series(f"held out, with 95 % interval{failed}", [*map(means.get, x)], Mark.POINTS, lows, highs))
    series += [Series(f"by {name}, not the reward", [scores.get(at) for at in x]) for name, scores in beside.items()]
    said = [f"training reward {_from_to(list(trained.values()))}"] if trained else []
    said += [f"held-out score {_from_to([*means.values()])}"] if means else []
    said += [f"score by {name}, not the reward, {_from_to(list(scores.values()))}" for name, scores in beside.items()]
    rows = [
        (
            after_epoch(at) if not at else str(at),
            _number(trained.get(at)),
            _number(means.get(at)),
            "{:.3f} to {:.3f}".format(*ends[at]) if at in ends else "",
            *(_number(scores.get(at)) for scores in beside.values()),
        )
        for at in x
    ]
    within = all(0 <= value <= 1 for each in series for value in each.values if value is not None)
    return Chart(
        title="Mean reward by epoch",
        summary=f"{'; '.join(said)}.".capitalize(),
        x_label="epoch",
        x=x,
        series=series,
        header=("epoch", "training", "held out after", "95 % interval", *(f"by {name}" for name in beside)),
        rows=spread(rows),
        y_range=(0.0, 1.0) if within else None,
    )


def metric_chart(title: str, name: str, epochs: Sequence[EpochRecord]) -> Chart | None:
    """A metric by epoch; None if no epoch has it."""
    shown = ((epoch_number(epoch.epoch), epoch.metrics.get(name)) for epoch in spread(epochs, _POINTS))
    values = {at: value for at, value in shown if value is not None and is_score(value)}
    if not values:
        return None
    return Chart(
        title=title,
        summary=f"{name} {_from_to(list(values.values()), '.3g')}.",
        x_label="epoch",
        x=list(values),
        series=[Series(name, list(values.values()), Mark.POINTS if len(values) == 1 else Mark.LINE)],
        header=("epoch", name),
        rows=spread([(str(at), f"{value:.4g}") for at, value in values.items()]),
    )


def two_curves(rewards: Mapping[str, Sequence[float]]) -> Chart | None:
    """The training rewards of several runs over their epochs; None without any."""
    x = list(range(1, 1 + max(map(len, rewards.values()), default=0)))
    if not x:
        return None
    series = [Series(name, [*own, *[None] * (len(x) - len(own))], Mark.LINE) for name, own in rewards.items()]
    rows = [(str(at), *(_number(each.values[at - 1]) for each in series)) for at in x]
    said = "; ".join(f"{name} {_from_to(own)}" for name, own in rewards.items() if own)
    return Chart("Mean reward in training", f"{said}.", "epoch", x, series, ("epoch", *rewards), spread(rows))


def histogram_chart(bins: Sequence[Bin]) -> Chart | None:
    """How many rollouts have which reward; None without a reward."""
    if not bins:
        return None
    most = max(bins, key=lambda each: each.count)
    total = sum(each.count for each in bins)
    return Chart(
        title="Rewards of the rollouts",
        summary=f"{total:,} rollouts with a reward; most, {most.count:,}, have {most.label}.",
        x_label="reward",
        x=[each.middle for each in bins],
        series=[Series("rollouts", [float(each.count) for each in bins], Mark.BARS)],
        header=("reward", "rollouts"),
        rows=[(each.label, f"{each.count:,}") for each in bins],
    )


def _from_to(values: Sequence[float], form: str = ".3f") -> str:
    return f"{values[0]:{form}}" if len(values) == 1 else f"{values[0]:{form}} → {values[-1]:{form}}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
