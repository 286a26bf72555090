"""Causes in the scores: they are constant, noisy, do not depend on the answer, or no group has a difference. Pure."""

from nat.finetuning.diagnosis.cause import Symptom, cause
from nat.finetuning.diagnosis.evidence import EASY, HARD, Evidence
from nat.finetuning.rollout_statistics import MIN_REPEATS
from nat.wire.rewards import equal

NOISE = 0.5
"""Share of the variance between rollouts of an example that equal rollouts have, too: above it, a difference in score
more often comes from noise than from the answers."""
LIKELY_CHANCE = 1.0
"""Standard errors by which different answers differ more in score than equal ones: below, chance explains it better
than a noisy score does."""
EQUAL_GROUPS = 0.5
"""Share of the groups without a difference in score; common practice: healthy below a half, alarm above .8."""
CURRICULUM = 0.9
"""Share of the groups with a difference that a curriculum may leave out; it begins with 30 % of the groups."""
EITHER_WAY = 0.3
"""Share of the signal that a constant score of 0 or 1 takes by itself: it is the lowest or highest of most scores, so
the examples are likelier to blame."""


@cause(
    title="The score is always the same",
    measure="difference between the highest and the lowest score of the run",
    healthy="above 0",
    source="equal scores have an advantage of zero",
    remedy=(
        "Score a good and a bad answer by hand with `nat eval`: the evaluator that finetuning.reward_function "
        "names must tell them apart."
    ),
)
def constant_score(evidence: Evidence) -> Symptom | None:
    if not evidence.constant or evidence.lowest is None:
        return None
    end_of_scale = any(equal([evidence.lowest, end]) for end in (0.0, 1.0))
    seen = f"every one of {evidence.num_rollouts:,} rollouts has the score {evidence.lowest:g}"
    if end_of_scale:
        return Symptom(
            EITHER_WAY, seen, "If the examples are too hard or too easy, change them or give partial credit."
        )
    return Symptom(1.0, seen)


@cause(
    title="The score does not depend on the answer",
    measure=(
        "share of the score's variance that equal answers have, too, if different answers have no more (F "
        f"test, from {MIN_REPEATS} repeated answers on)"
    ),
    healthy=f"below {NOISE:.0%}",
    source="an F test at one standard error; above it, the score counts as noisy",
    remedy=(
        "Check what the evaluator reads: it must score this rollout's output, not the question, the expected "
        "answer or chance."
    ),
)
def independent_score(evidence: Evidence) -> Symptom | None:
    noise = evidence.spread.noise_share
    if noise is not None and evidence.spread.dependence < LIKELY_CHANCE:
        return Symptom(
            noise,
            f"{noise:.0%} of the score's variance is between rollouts with equal answers ({evidence.spread.repeats} "
            "repeats), and different answers differ no more than these",
        )
    if not evidence.constant and evidence.equal_between > EQUAL_GROUPS:
        return Symptom(
            evidence.equal_between,
            f"in {evidence.equal_between:.0%} of the groups, different answers have the same score, which is neither "
            "the lowest nor the highest: the score depends on the example alone",
        )
    return None


@cause(
    title="The score is noisy",
    measure=f"share of the score's variance that equal answers have, too (from {MIN_REPEATS} repeated answers on)",
    healthy=f"below {NOISE:.0%}",
    source="above it, a difference in score is more often noise than merit",
    remedy=(
        "Average several judgements of each answer, let the judge answer at temperature 0, or raise num_generations."
    ),
)
def noisy_score(evidence: Evidence) -> Symptom | None:
    noise = evidence.spread.noise_share
    if noise is None or noise <= NOISE or evidence.spread.dependence < LIKELY_CHANCE:
        return None
    return Symptom(
        noise,
        f"{noise:.0%} of the score's variance is between rollouts with equal answers ({evidence.spread.repeats} "
        "repeats)",
    )


@cause(
    title="There is nothing to compare a rollout with",
    measure="rollouts per example and epoch",
    healthy="8; 16 where success is rare",
    source="common practice",
    remedy="Set num_generations of the trajectory builder to 8.",
)
def single_rollouts(evidence: Evidence) -> Symptom | None:
    if evidence.compares != "group" or not 0 < evidence.generations <= 1:
        return None
    return Symptom(1.0, "each example is played once in an epoch, so its score has nothing to be compared with")


@cause(
    title="The curriculum leaves out almost everything",
    measure="share of the groups with a difference in score that the curriculum left out",
    healthy=f"below {CURRICULUM:.0%}",
    source="our choice; a curriculum begins with 30 % of the groups",
    remedy="Lower curriculum_learning.min_reward_diff, or raise initial_percentile.",
)
def outside_curriculum(evidence: Evidence) -> Symptom | None:
    share = evidence.outside_curriculum
    if share <= CURRICULUM:
        return None
    return Symptom(share, f"the curriculum left out {share:.0%} of the groups that have a difference in score")


@cause(
    title="The examples are too hard",
    measure=(
        f"share of the examples with a mean score below {HARD:.0%} of the way from the lowest to the highest, "
        "if most groups have no difference"
    ),
    healthy=f"groups without a difference below {EQUAL_GROUPS:.0%}",
    source="common practice: alarm above 80 %",
    remedy=(
        "Choose examples that are sometimes solved and sometimes not, give partial credit, or start from a "
        "better model; with rare success, raise num_generations to 16."
    ),
)
def too_hard(evidence: Evidence) -> Symptom | None:
    share = evidence.hard
    if evidence.equal_groups <= EQUAL_GROUPS or share < evidence.easy or not share:
        return None
    return Symptom(
        min(share, evidence.equal_groups),
        f"{share:.0%} of the examples scored the lowest ({evidence.lowest:g}) in almost every rollout, and "
        f"{evidence.equal_groups:.0%} of the groups had no difference",
    )


@cause(
    title="The examples are too easy",
    measure=(
        f"share of the examples with a mean score above {EASY:.0%} of the way in the first third of the "
        "epochs, if most groups have no difference"
    ),
    healthy=f"groups without a difference below {EQUAL_GROUPS:.0%}",
    source="common practice: alarm above 80 %",
    remedy="Choose harder examples, or a score that distinguishes good answers from better ones.",
)
def too_easy(evidence: Evidence) -> Symptom | None:
    share = evidence.easy
    if evidence.equal_groups <= EQUAL_GROUPS or share <= evidence.hard:
        return None
    return Symptom(
        min(share, evidence.equal_groups),
        f"{share:.0%} of the examples scored the highest ({evidence.highest:g}) in almost every rollout from the "
        f"start, and {evidence.equal_groups:.0%} of the groups had no difference",
    )


@cause(
    title="Too few rollouts per example",
    measure="share of the groups without a difference, of examples that are sometimes solved",
    healthy=f"below {EQUAL_GROUPS:.0%}",
    source="common practice: alarm above 80 %",
    remedy="Raise num_generations: to 8, or to 16 where success is rare.",
)
def few_generations(evidence: Evidence) -> Symptom | None:
    share = evidence.equal_groups - evidence.hard - evidence.easy - evidence.equal_between
    if share <= EQUAL_GROUPS or evidence.constant or evidence.compares != "group" or not evidence.num_examples:
        return None
    return Symptom(
        share,
        f"{evidence.equal_groups:.0%} of the groups of {evidence.generations:.0f} rollouts had no difference, most of "
        "them of examples that are sometimes solved",
    )


CAUSES_OF_SCORES = (
    single_rollouts,
    constant_score,
    independent_score,
    noisy_score,
    outside_curriculum,
    too_hard,
    too_easy,
    few_generations,
)
