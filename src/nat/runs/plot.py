"""`reward_plot.png`: the plot of a run, drawn from the journal by `python -m nat.runs.plot RUN_DIR`.

Matplotlib takes 45 MB, more with each plot of a long run, and blocks its process, so a child process draws. Only its
object-oriented half is imported: without pyplot there is no global state and no window system, and the user's settings
do not apply.
"""

import sys
from collections.abc import Sequence
from itertools import groupby
from math import hypot, sqrt
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nat.builder.child_processes import run_module
from nat.data_models.rollout_failure import FailureCount
from nat.data_models.score import mean
from nat.errors import NatError, describe_error
from nat.eval.failures import FAILURES_NAME
from nat.files import replacing
from nat.runs.journal import Journal
from nat.runs.records import (
    EpochRecord,
    RunSummary,
    ValidationRecord,
    Verdict,
    epoch_number,
    num_rollouts,
    played_epochs,
    total_of,
)
from nat.runs.scores_beside import scores_beside
from nat.secrets import keep_files_private

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOT_NAME = "reward_plot.png"

Z_95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""

_INK = "#1f2933"
_FAINT = "#7b8794"
_GRID = "#e4e7eb"
_TRAIN = "#3b7dd8"
_HELD_OUT = "#e8590c"
_CURRICULUM = "#868e96"
_OTHER = "#2b8a3e"
_MINUS = "\N{MINUS SIGN}"
_SMOOTHED_FROM = 5
"""A plot of fewer epochs has no smoothed line."""
_BELOW = -0.145
_LINE_CHARS = 140
_HEADROOM = 1.04
"""Keeps a reward of exactly 1 off the frame."""
_VERDICT = {
    Verdict.IMPROVED: ("improved", "#2b8a3e"),
    Verdict.NOT_SHOWN: ("no improvement shown", "#7b8794"),
    Verdict.WORSE: ("worse", "#c92a2a"),
}


def draw(
    path: Path,
    run_id: str,
    epochs: Sequence[EpochRecord],
    validations: Sequence[ValidationRecord],
    summary: RunSummary | None,
) -> None:
    """Replace `path` by the plot: 12 x 7 inches at 150 dpi."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7), dpi=150, facecolor="white")
    curriculum = any(epoch.curriculum_percentile < 1 for epoch in epochs)
    axes = figure.add_axes((0.07, 0.115, 0.865 if curriculum else 0.9, 0.715))
    _frame(axes)
    if curriculum:
        _curriculum(axes, epochs)
    _phases(axes, epochs)
    _training(axes, played_epochs(epochs))
    _beside(axes, played_epochs(epochs))
    _held_out(axes, validations)
    _range(axes, epochs)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", framealpha=0.9, edgecolor="none", fontsize=11, labelcolor=_INK)
    _headline(axes, run_id, summary)
    if failures := total_of(epochs, validations):
        _failures(axes, failures, num_rollouts(epochs, validations))
    with replacing(path) as file:
        figure.savefig(file, format="png")


def _frame(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_FAINT)
    axes.grid(axis="y", color=_GRID, linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_FAINT, labelsize=11, length=0, pad=6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda epoch, _: f"{epoch:g}" if epoch else "before")
    axes.set_xlabel("epoch", color=_INK, fontsize=12, labelpad=8)
    axes.set_ylabel("mean reward", color=_INK, fontsize=12, labelpad=8)
    axes.margins(y=0.08)


def _training(axes: "Axes", epochs: Sequence[EpochRecord]) -> None:
    if not epochs:
        return
    numbers = [epoch_number(epoch.epoch) for epoch in epochs]
    rewards = [epoch.avg_reward for epoch in epochs]
    axes.plot(numbers, rewards, color=_TRAIN, alpha=0.4, linewidth=1, marker="o", markersize=3.5, label="training")
    if len(epochs) >= _SMOOTHED_FROM:
        reach = smoothing_reach(len(epochs))
        label = f"training, mean over {2 * reach + 1} epochs"
        axes.plot(numbers, moving_average(rewards, reach), color=_TRAIN, linewidth=2.8, label=label)


def _beside(axes: "Axes", epochs: Sequence[EpochRecord]) -> None:
    """The mean scores by other evaluators than the reward, where they have about its scale."""
    if not epochs:
        return
    low, high = min(e.min_reward for e in epochs), max(e.max_reward for e in epochs)
    reach = max(high - low, abs(high))
    for number, (name, scores) in enumerate(sorted(scores_beside(epochs).items())):
        if all(low - reach <= score <= high + reach for score in scores.values()):
            style, label = (0, (1 + number, 1.5)), "by {}, not the reward".format(name.replace("$", r"\$"))
            axes.plot([*scores], [*scores.values()], color=_OTHER, linewidth=1.8, linestyle=style, label=label)


def _held_out(axes: "Axes", validations: Sequence[ValidationRecord]) -> None:
    from matplotlib.patheffects import withStroke

    points = [(record.epoch, *mean_interval(rewards)) for record in validations if (rewards := record.rewards)]
    if not points:
        return
    epochs, lows, means, highs = (list(column) for column in zip(*points, strict=True))
    axes.errorbar(
        epochs,
        means,
        yerr=(
            [m - low for m, low in zip(means, lows, strict=True)],
            [h - m for m, h in zip(means, highs, strict=True)],
        ),
        color=_HELD_OUT,
        linewidth=2.4,
        marker="o",
        markersize=8,
        markeredgecolor="white",
        markeredgewidth=1.2,
        capsize=4,
        elinewidth=1.4,
        label="held out, with 95 % interval",
        zorder=4,
    )
    for place in {0, len(points) - 1}:
        axes.annotate(
            f"{means[place]:.2f}".replace("-", _MINUS),
            (epochs[place], highs[place]),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=13,
            fontweight="bold",
            color=_HELD_OUT,
            path_effects=[withStroke(linewidth=4, foreground="white")],
            zorder=5,
        )


def _phases(axes: "Axes", epochs: Sequence[EpochRecord]) -> None:
    """The name of each phase of training over its epochs, with a line where the next one begins."""
    for name, own in groupby(epochs, key=attrgetter("phase")):
        first = next(own).epoch
        begin = first + 0.5 if first else 0.0
        if name is None:
            continue
        if first:
            axes.axvline(begin, color=_FAINT, linewidth=1, linestyle="--")
        where = axes.get_xaxis_transform()
        axes.text(begin, 1.005, f" {name}", transform=where, fontsize=11, color=_FAINT, parse_math=False)


def _curriculum(axes: "Axes", epochs: Sequence[EpochRecord]) -> None:
    """The share of groups that the curriculum admits, as steps behind the curves."""
    second = axes.twinx()
    for side in second.spines.values():
        side.set_visible(False)
    numbers = [epoch_number(epoch.epoch) - 0.5 for epoch in epochs] + [epoch_number(epochs[-1].epoch) + 0.5]
    shares = [100 * epoch.curriculum_percentile for epoch in epochs]
    shares.append(shares[-1])
    second.fill_between(numbers, shares, step="post", color=_CURRICULUM, alpha=0.1, linewidth=0)
    second.step(numbers, shares, where="post", color=_CURRICULUM, alpha=0.6, linewidth=1)
    second.set_ylim(0, 100 * _HEADROOM)
    second.tick_params(colors=_FAINT, labelsize=11, length=0, pad=6)
    second.set_ylabel("groups in the curriculum (%)", color=_FAINT, fontsize=12, labelpad=8)
    axes.set_zorder(second.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.plot([], [], color=_CURRICULUM, alpha=0.6, linewidth=1, label="curriculum (right axis)")


def _range(axes: "Axes", epochs: Sequence[EpochRecord]) -> None:
    """Leave room for the last validation; show rewards of 0 to 1 on that range, so that a small rise looks small."""
    last = max((epoch_number(epoch.epoch) for epoch in epochs), default=1)
    axes.set_xlim(-0.03 * last, 1.03 * last)
    if epochs and min(epoch.min_reward for epoch in epochs) >= 0 and max(epoch.max_reward for epoch in epochs) <= 1:
        axes.set_ylim(0, _HEADROOM)


def _headline(axes: "Axes", run_id: str, summary: RunSummary | None) -> None:
    """The title, the verdict below it, and facts of the run on the right."""
    title, verdict, color = "Mean reward by epoch", "", _FAINT
    facts = [f"run {run_id}"]
    if summary is not None:
        facts += [f"{summary.epochs} epochs", duration(summary.seconds)]
    if summary is not None and summary.verdict is not None and summary.interval is not None:
        low, high = summary.interval
        word, color = _VERDICT[summary.verdict]
        title = f"Held-out reward {summary.before:.2f} → {summary.after:.2f}"
        verdict = f"{word}: {summary.difference:+.2f} on the same {summary.num_examples} examples"
        verdict += f" (95 % interval {low:+.2f} to {high:+.2f})"
    _write(axes, 0, 1.115, title, size=21, color=_INK, weight="bold")
    _write(axes, 0, 1.055, verdict, size=13, color=color)
    _write(axes, 1, 1.125, "  ·  ".join(facts), size=11, color=_FAINT)


def _failures(axes: "Axes", failures: Sequence[FailureCount], rollouts: int) -> None:
    """One line below the frame, because the curves leave failed rollouts out."""
    failed = sum(each.count for each in failures)
    text = f"{failed} of {rollouts} rollouts failed: {'; '.join(map(str, failures))}"
    text = text if len(text) <= _LINE_CHARS else f"{text[:_LINE_CHARS]} …"
    axes.text(
        0,
        _BELOW,
        f"{text} (see {FAILURES_NAME})",
        transform=axes.transAxes,
        fontsize=10,
        color=_VERDICT[Verdict.WORSE][1],
        parse_math=False,
    )


def _write(axes: "Axes", x: int, y: float, text: str, *, size: int, color: str, weight: str = "normal") -> None:
    """Text above the frame, flush left at x = 0 and flush right at x = 1."""
    side: Literal["left", "right"] = "right" if x else "left"
    axes.text(
        x,
        y,
        text.replace(" -", f" {_MINUS}"),
        transform=axes.transAxes,
        fontsize=size,
        fontweight=weight,
        color=color,
        ha=side,
    )


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moving_average(values: Sequence[float], reach: int) -> list[float]:
    """Mean of each value and up to `reach` neighbours on either side; centred, so that the curve does not lag."""
    spans = (values[max(0, place - reach) : place + reach + 1] for place in range(len(values)))
    return [mean(span) for span in spans]


def smoothing_reach(count: int) -> int:
    """A twentieth of the epochs, at least one: smooths the curve without hiding a collapse."""
    return max(1, round(count / 20))


def mean_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """Lower end, mean and upper end of the mean's 95 % interval, by the normal approximation; at least one score.

    All three lie within the scores' own range. The interval is for one point of the curve; the verdict on a run
    compares the same examples before and after (`nat.finetuning.verdict`).
    """
    middle = mean(scores)
    if len(scores) == 1:
        return middle, middle, middle
    reach = Z_95 * hypot(*(score - middle for score in scores)) / sqrt(len(scores) * (len(scores) - 1))
    return max(min(scores), middle - reach), middle, min(max(scores), middle + reach)


async def draw_run(run_dir: Path) -> str | None:
    """Replace the plot of a run; return the error's text, or None."""
    code, output = await run_module(__name__, str(run_dir))
    return (output or f"the plot process ended with exit code {code}") if code else None


def main(run_dir: Path) -> str | None:
    """Draw the journal's run; return the error's text, or None."""
    keep_files_private()
    try:
        with Journal.open(run_dir, read_only=True) as journal:
            run_id = journal.info().run_id
            draw(run_dir / PLOT_NAME, run_id, journal.epochs(), journal.validations(), journal.summary())
    except (OSError, NatError) as error:
        return describe_error(error)
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
