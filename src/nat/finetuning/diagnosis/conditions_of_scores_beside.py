"""The condition of a reward that rises while a score beside it falls. Pure."""

from collections.abc import Sequence

from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.trend import change, change_beside, first_third, last_third
from nat.finetuning.diagnosis.window import Window
from nat.runs.rollouts import RolloutRecord
from nat.runs.scores_beside import scores_beside

SHOWN = 3
"""Rollouts that the finding names."""


@condition(
    title="The reward rises while another score falls",
    measure="mean score by each evaluator that is not the reward, in the first and the last third of the epochs",
    healthy="no fall beyond two standard errors while the reward rises by more than two",
    source="the same test as for the reward",
    remedy="Read these rollouts: the model may have found a flaw of the reward. Let the reward count what the other "
    "evaluator sees, such as by an evaluator that combines both, or set beta.",
    despite_learning=True,
    warns_over=1,
    warns_from=6,
)
def reward_alone_rises(window: Window, _bound: float) -> Seen | None:
    run = window.run
    if window.relative or len(run) < 2:
        return None
    first, last = first_third(run), last_third(run)
    reward = change(first, last)
    changes = {name: change_beside(name, first, last) for name in scores_beside(run)}
    falls = {name: found for name, found in changes.items() if found is not None and found.fell}
    if not reward.rose or not falls:
        return None
    name, fall = min(falls.items(), key=lambda each: each[1].gain / (each[1].error or 1.0))
    return Seen(
        0.5,
        f"the reward gained {reward.gain:+.3f}, and the score by '{name}' {fall.gain:+.3f} (from {fall.before:.3f} to "
        f"{fall.after:.3f} ± {fall.error:.3f}){_parted(window.facts.last_rollouts, name)}",
    )


def _parted(rollouts: Sequence[RolloutRecord], name: str) -> str:
    """The rollouts of the last epoch whose reward is the highest above the other score, each on its own scale."""
    scored = [
        (r, r.reward, r.scores_beside[name]) for r in rollouts if r.reward is not None and name in r.scores_beside
    ]
    if not scored:
        return ""
    heights = list(zip(*(_heights(values) for values in list(zip(*scored, strict=True))[1:]), strict=True))
    apart = sorted(zip(heights, scored, strict=True), key=lambda each: each[0][1] - each[0][0])
    shown = [
        f"{record.example_id}/{record.generation} ({reward:.3g} and {other:.3g})"
        for (own, beside), (record, reward, other) in apart[:SHOWN]
        if own > beside
    ]
    return f"; they part most in {', '.join(shown)}" if shown else ""


def _heights(scores: Sequence[float]) -> list[float]:
    """The scores as shares of the way from the lowest to the highest."""
    low, high = min(scores), max(scores)
    return [(score - low) / ((high - low) or 1.0) for score in scores]
