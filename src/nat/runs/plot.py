"""`reward_plot.png`: the plot of a run, drawn from the journal by `python -m nat.runs.plot RUN_DIR`.

Matplotlib takes 45 MB, more with each plot of a long run, and blocks its process, so a child process draws. Only its
object-oriented half is imported: without pyplot there is no global state and no window system, and the user's settings
do not apply.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from nat.builder.child_processes import run_module
from nat.data_models.score import interval, mean
from nat.errors import NatError, describe_error
from nat.files import replacing
from nat.runs.journal import Journal
from nat.runs.records import (
    EpochRecord,
    RunSummary,
    ValidationRecord,
    epoch_number,
    played_epochs,
    same_examples,
    score_range,
)
from nat.secrets import keep_files_private

PLOT_NAME = "reward_plot.png"

_TRAIN, _HELD_OUT = "#3b7dd8", "#e8590c"


def draw(
    path: Path,
    run_id: str,
    epochs: Sequence[EpochRecord],
    validations: Sequence[ValidationRecord],
    summary: RunSummary | None,
) -> None:
    """Replace `path` by the plot, 12 x 7 inches at 150 dpi: the training curve, and the held-out one with its band."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(12, 7), dpi=150, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch (0: before training)")
    axes.set_ylabel("mean reward")
    if played := played_epochs(epochs):
        numbers, rewards = [epoch_number(epoch.epoch) for epoch in played], [epoch.avg_reward for epoch in played]
        axes.plot(numbers, rewards, color=_TRAIN, marker=".", label="training")
    pairs = zip(validations, same_examples(validations), strict=True)
    scores = {record.epoch: [*own.values()] for record, own in pairs if own}
    if scores:
        after, means = [*scores], [*map(mean, scores.values())]
        lows, highs = zip(*(interval(own, *score_range(own)) for own in scores.values()), strict=True)
        failed = ", failed ones as the lowest" if any(record.num_failed for record in validations) else ""
        axes.fill_between(after, lows, highs, color=_HELD_OUT, alpha=0.2, label="95 % interval")
        axes.plot(after, means, color=_HELD_OUT, marker="o", linewidth=2.4, label=f"held out{failed}")
    if played or scores:
        axes.legend(loc="best")
    if epochs and min(epoch.min_reward for epoch in epochs) >= 0 and max(epoch.max_reward for epoch in epochs) <= 1:
        axes.set_ylim(0, 1.04)  # so that a small rise looks small
    axes.set_title(_title(run_id, summary), loc="left", parse_math=False)
    with replacing(path) as file:
        figure.savefig(file, format="png")


def _title(run_id: str, summary: RunSummary | None) -> str:
    if summary is None or summary.verdict is None or summary.interval is None:
        return f"Mean reward by epoch, run {run_id}"
    low, high = summary.interval
    return (
        f"Held-out reward {summary.before:.2f} → {summary.after:.2f}, run {run_id}\n"
        f"{summary.verdict}: {summary.difference:+.2f} on the same {summary.num_examples} examples "
        f"(95 % interval {low:+.2f} to {high:+.2f})"
    )


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


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
            draw(run_dir / PLOT_NAME, run_id, journal.epochs(), journal.validations(), journal.find(RunSummary))
    except (OSError, NatError) as error:
        return describe_error(error)
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
