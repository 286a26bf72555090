"""Charts as values: what a page draws, says in a sentence, and lists in a table. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from nat.data_models.score import is_score
from nat.runs.outcomes import Bin
from nat.runs.plot import mean_interval
from nat.runs.records import (
    EpochRecord,
    JobRecord,
    ValidationRecord,
    after_epoch,
    epoch_number,
    played_epochs,
    scores_beside,
)

T = TypeVar("T")
Values = Sequence[float | None]

_TABLE_ROWS = 40
"""Rows of a chart's table; those of a long run are spread evenly."""
_POINTS = 1000
"""Points of a curve; those of a longer run are spread evenly."""
_LANE_EPOCHS = 300
"""Epochs whose time is drawn, the last ones."""


class Mark(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    POINTS = "points"
    """A line with a point at each value."""
    BARS = "bars"
    LANE = "lane"
    """A thick line: a span of time."""


@dataclass(frozen=True)
class Series:
    """One value for each x; None where it has none."""

    label: str
    values: Values
    mark: Mark = Mark.LINE
    low: Values = ()
    """Lower ends of intervals, if it has them."""
    high: Values = ()
    notes: Sequence[str] = ()
    """A word for each value, where there is room."""


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
    lanes: Sequence[str] = ()
    """Names of the lanes from the bottom up, where y counts lanes."""
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
    scores = ((record.epoch, record.rewards) for record in spread(validations, _POINTS))
    held_out = {epoch: mean_interval(rewards) for epoch, rewards in scores if rewards}
    beside = scores_beside(spread(played_epochs(epochs), _POINTS))
    x = sorted(trained.keys() | held_out.keys())
    if not x:
        return None
    series = [Series("training", [trained.get(at) for at in x], Mark.LINE)] if trained else []
    if held_out:
        lows, means, highs = ([held_out[at][place] if at in held_out else None for at in x] for place in range(3))
        series.append(Series("held out, with 95 % interval", means, Mark.POINTS, lows, highs))
    series += [Series(f"by {name}, not the reward", [scores.get(at) for at in x]) for name, scores in beside.items()]
    said = [f"training reward {_from_to(list(trained.values()))}"] if trained else []
    said += [f"held-out score {_from_to([middle for _, middle, _ in held_out.values()])}"] if held_out else []
    said += [f"score by {name}, not the reward, {_from_to(list(scores.values()))}" for name, scores in beside.items()]
    rows = [
        (
            after_epoch(at) if not at else str(at),
            _number(trained.get(at)),
            _number(held_out[at][1]) if at in held_out else "",
            f"{held_out[at][0]:.3f} to {held_out[at][2]:.3f}" if at in held_out else "",
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


@dataclass(frozen=True)
class _Stage:
    """A span of time on a lane; times are seconds since 1970."""

    lane: str
    begin: float
    end: float
    note: str = ""
    """The weights that it was played with, or that it made."""
    age: int = 0
    """Updates since these weights were the current ones."""

    @property
    def label(self) -> str:
        return f"{self.lane}, weights of {self.age} update{'s' * (self.age > 1)} ago" if self.age else self.lane


_LANES = ("validations", "updates", "hand-over", "scoring", "rollouts and scoring")


def time_chart(
    epochs: Sequence[EpochRecord],
    validations: Sequence[ValidationRecord],
    jobs: Sequence[JobRecord],
    begun: datetime | None,
) -> Chart | None:
    """When the run played, handed over, trained and validated, in seconds from its beginning; None before that."""
    shown = epochs[-_LANE_EPOCHS:]
    stages = sorted(_stages(shown, validations, jobs), key=lambda stage: stage.begin)
    if not stages:
        return None
    start = begun.timestamp() if begun is not None and len(shown) == len(epochs) else stages[0].begin
    lanes = [lane for lane in _LANES if any(stage.lane == lane for stage in stages)]
    whole = max(stage.end for stage in stages) - min(stage.begin for stage in stages)
    labels = sorted({(lanes.index(stage.lane), -stage.age, stage.label) for stage in stages})
    names = dict.fromkeys(name for place, _, label in labels for name in (label, lanes[place]))
    spent = {name: sum(each.end - each.begin for each in stages if name in (each.lane, each.label)) for name in names}
    idle = whole - _covered(stages)
    rows = [(lane, f"{seconds:,.1f}", f"{seconds / whole:.0%}" if whole else "") for lane, seconds in spent.items()]
    part = "" if len(shown) == len(epochs) else f"The last {len(shown)} epochs. "
    return Chart(
        title="Where the time goes",
        summary=f"{part}Shares: {', '.join(f'{lane} {share}' for lane, _, share in reversed(rows))}; "
        f"{f'{idle / whole:.0%}' if whole else 'none'} of {whole:,.1f} s is in no lane.",
        x_label="seconds",
        x=[],
        series=[_lane(place, label, stages, start) for place, _, label in labels],
        header=("lane", "seconds", "share of the time"),
        rows=[*reversed(rows), ("in no lane", f"{idle:,.1f}", f"{idle / whole:.0%}" if whole else "")],
        y_range=(-0.6, len(lanes) - 0.4),
        lanes=lanes,
    )


def _lane(place: int, label: str, stages: Sequence[_Stage], start: float) -> Series:
    """A lane's spans: `low` and `high` have their begin and end, in seconds."""
    own = [stage for stage in stages if stage.label == label]
    return Series(
        label,
        [float(place)] * len(own),
        Mark.LANE,
        [round(stage.begin - start, 3) for stage in own],
        [round(stage.end - start, 3) for stage in own],
        [stage.note for stage in own],
    )


def _stages(
    epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord], jobs: Sequence[JobRecord]
) -> Iterable[_Stage]:
    """Epochs record how long their stages took, jobs when they were submitted.

    Rollouts that were played ahead began after those before them, beside the job that replaced their weights.
    """
    by_epoch = {job.epoch: job for job in jobs}
    ahead = {epoch.epoch + 1 for epoch in epochs if "time/overlapped" in epoch.metrics}
    played = float("-inf")
    for epoch in epochs:
        job, spent = by_epoch.get(epoch.epoch), epoch.metrics
        ended = (job and job.finished_at) or epoch.timestamp
        trains = job.submitted_at.timestamp() if job else ended.timestamp() - spent.get("time/train", 0.0)
        hands_over = trains - spent.get("time/submit", 0.0)
        end, before = hands_over, by_epoch.get(epoch.epoch - 1)
        earlier = [each for each in jobs if each.policy_version and each.epoch < epoch.epoch]
        made = [str(each.policy_version) for each in earlier]
        if before is not None and epoch.epoch in ahead:
            weights = zip([*epochs[0].policy_versions, *made], earlier, strict=False)
            replaced = [each for version, each in weights if version in epoch.policy_versions]
            begin = max(played, min(each.submitted_at.timestamp() for each in [*replaced, before]))
            end = min(end, begin + spent.get("time/rollout", 0.0))
        played = end
        begin = end - spent.get("time/rollout", 0.0)
        yield from _rollouts(begin, end, epoch.policy_versions, [*epochs[0].policy_versions, *made], before)
        yield from (_Stage("scoring", *span) for span in epoch.scoring)
        yield _Stage("hand-over", hands_over, trains)
        new = _short("→", job.policy_version if job else None)
        yield _Stage("updates", trains, max(trains, ended.timestamp()), new)
    first = epochs[0].epoch if epochs else 0
    for record in validations:
        if record.epoch >= first:
            at = record.timestamp.timestamp()
            yield _Stage("validations", at - record.seconds, at)
            yield from (_Stage("scoring", *span) for span in record.scoring)


def _rollouts(
    begin: float, end: float, played: Iterable[str], known: Sequence[str], before: JobRecord | None
) -> Iterable[_Stage]:
    """The rollouts of an epoch, parted where the job before has replaced their weights; `known` has those so far."""
    order = [*dict.fromkeys(reversed(known))]
    ages = {version: order.index(version) if version in order else 0 for version in played}
    old = {version: age for version, age in ages.items() if age}
    switch = before.finished_at.timestamp() if before and before.finished_at else begin
    if begin < switch < end and 0 < len(old) < len(ages):
        yield _Stage(_LANES[-1], begin, switch, _short("", *old), max(old.values()))
        begin, ages = switch, {version: 0 for version in ages if version not in old}
    yield _Stage(_LANES[-1], begin, end, _short("", *ages), max(ages.values(), default=0))


def _short(before: str, *versions: str | None) -> str:
    """The names of weights without that of the model."""
    return " ".join([before + version[max(0, version.rfind("@")) :] for version in versions if version])


def _covered(stages: Sequence[_Stage]) -> float:
    """Seconds in which at least one lane is busy; the stages are in the order of their beginnings."""
    covered, until = 0.0, float("-inf")
    for stage in stages:
        covered += max(0.0, stage.end - max(stage.begin, until))
        until = max(until, stage.end)
    return covered


def _from_to(values: Sequence[float], form: str = ".3f") -> str:
    return f"{values[0]:{form}}" if len(values) == 1 else f"{values[0]:{form}} → {values[-1]:{form}}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
