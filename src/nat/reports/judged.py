"""The numbers by which conditions judge a run: each metric by epoch, with its healthy range. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.conditions import CONDITIONS
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.metrics import SAME_ANSWER
from nat.reports.charts import Chart, metric_chart
from nat.runs.records import EpochRecord

JUDGED = {
    "reward/equal_groups": ("Groups without a difference", "too_hard"),
    SAME_ANSWER: ("Rollouts with the most frequent answer", "answers_alike"),
    "rollout/truncated": ("Rollouts cut off", "truncation"),
    "rollout/failed": ("Rollouts that failed", "rollouts_failed"),
    "rollout/tool_errors": ("Results of tools that are errors", "rollouts_failed"),
    "reward/length_correlation": ("Correlation of score and length", "rewards_length"),
    "train/entropy": ("Entropy of the answers, in nats", "answers_alike"),
    "train/unasked_kl": ("KL of an update against its advantages", "rate_too_high"),
    "train/approx_kl": ("KL of an update", "rate_too_high"),
    "train/kept_share": ("Share of the update that max_kl kept", "rate_too_high"),
    "train/logprob_diff_mean": ("Mismatch of sampler and learner, mean |Δ log p|", None),
}
"""Title of each metric and the condition that judges it; the backend itself judges the last."""


@dataclass(frozen=True)
class JudgedNumber:
    """A metric by epoch, and what would be healthy."""

    chart: Chart
    condition: str
    """The condition's title; empty for what the backend judges."""
    healthy: str
    outside: bool = False
    """Whether the last epochs are out of that range; a run that has learned may be."""


def judged_numbers(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> list[JudgedNumber]:
    """The metrics that the run reports, in the order of its stages; the loss where it trained on a file."""
    by_name = {condition.name: condition for condition in CONDITIONS}
    loss = metric_chart("Loss on the rows of the file", "train/loss", [each for each in epochs if not each.played])
    found = [] if loss is None else [JudgedNumber(loss, "", "a fall")]
    for name, (title, judge) in JUDGED.items():
        if (chart := metric_chart(title, name, epochs)) is None:
            continue
        if judge is None:
            found.append(JudgedNumber(chart, "", "below max_logprob_difference"))
            continue
        judging = by_name[judge]
        over = judging.warns_over or len(epochs)
        outside = judging.seen_in(Window(epochs[-over:], epochs[:-over], guards=guards)) is not None
        found.append(JudgedNumber(chart, judging.title, judging.range_in(guards), outside))
    return found
