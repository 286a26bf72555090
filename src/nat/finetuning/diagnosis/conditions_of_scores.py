"""Conditions of the scores: they are constant, a matter of chance, or no group differs. Pure."""

from collections.abc import Mapping
from typing import Any

from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.window import EASY, HARD, Window
from nat.wire.rewards import equal

NOISE = 0.5
"""Share of the variance between rollouts of an example that equal rollouts have, too: above it, a difference in score
more often comes from noise than from the answers."""
EITHER_WAY = 0.3
"""Share of the signal that a constant score of 0 or 1 takes by itself: it is the lowest or highest of most scores, so
the examples are likelier to blame."""
OF_EQUAL_GROUPS: Mapping[str, Any] = {"bound": "max_equal_groups", "warns_over": 5}
"""What conditions have in common of which one explains why most groups have no difference."""


@condition(
    title="The score is always the same",
    healthy="a difference between the highest and the lowest score of the run",
    remedy="Score a good and a bad answer in a test of your own: the evaluator that finetuning.reward_function names "
    "must tell them apart.",
)
def constant_score(window: Window, _bound: float) -> Seen | None:
    if not window.constant:
        return None
    seen = f"every one of {sum(window.counts):,} rollouts has the score {window.lowest:g}"
    if any(equal([window.lowest, end]) for end in (0.0, 1.0)):
        return Seen(EITHER_WAY, seen, "If the examples are too hard or too easy, change them or give partial credit.")
    return Seen(1.0, seen)


@condition(
    title="The score is chance, or depends on the example alone",
    **OF_EQUAL_GROUPS,
    healthy=f"below {NOISE:.0%} of the score's variance between rollouts with equal answers, and groups without a "
    "difference below {bound:.0%}",
    remedy="Check what the evaluator reads: it must score this rollout's output, not the question, the expected answer "
    "or chance. Of a noisy judge, average several judgements, or let it answer at temperature 0.",
)
def independent_score(window: Window, bound: float) -> Seen | None:
    noise = window.noise()
    if noise is not None and noise > NOISE:
        return Seen(noise, f"{noise:.0%} of the score's variance is between rollouts with equal answers")
    ends = ("reward/equal_groups_lowest", "reward/equal_groups_highest")
    between = (window.mean("reward/equal_groups") or 0.0) - sum(window.mean(name) or 0.0 for name in ends)
    by_chance = window.equal_groups - window.hard - window.easy - between
    if window.constant or window.equal_groups <= bound or between < max(window.hard, window.easy, by_chance):
        return None
    alike = "different answers have the same score, which is neither the lowest nor the highest"
    return Seen(between, f"in {between:.0%} of the groups, {alike}")


@condition(
    title="The examples are too hard",
    **OF_EQUAL_GROUPS,
    healthy=f"groups without a difference below {{bound:.0%}}, or few examples with a mean score below {HARD:.0%} of "
    "the way from the lowest to the highest",
    remedy="If rows have answers, imitate these first (`nat runs imitate latest` writes the file and the YAML). Else "
    "choose examples that are sometimes solved and sometimes not, give partial credit, say in the prompt exactly what "
    "is wanted, write some 32 demonstrations, or start from a better model; where success is rare, play 16 generations "
    "of each example.",
)
def too_hard(window: Window, bound: float) -> Seen | None:
    share = window.hard
    if window.equal_groups <= bound or share < window.easy or not share:
        return None
    return _alike(window, share, f"the lowest ({window.lowest:g}) in almost every rollout")


@condition(
    title="The examples are too easy",
    **OF_EQUAL_GROUPS,
    healthy=f"groups without a difference below {{bound:.0%}}, or few examples with a mean score above {EASY:.0%} of "
    "the way in the first third of the epochs",
    remedy="Choose harder examples, or a score that distinguishes good answers from better ones.",
)
def too_easy(window: Window, bound: float) -> Seen | None:
    share = window.easy
    if window.equal_groups <= bound or share <= window.hard:
        return None
    return _alike(window, share, f"the highest ({window.highest:g}) in almost every rollout from the start")


def _alike(window: Window, share: float, scored: str) -> Seen:
    groups = f"{window.equal_groups:.0%} of the groups had no difference"
    return Seen(min(share, window.equal_groups), f"{share:.0%} of the examples scored {scored}, and {groups}")


OF_SCORES = (constant_score, independent_score, too_hard, too_easy)
