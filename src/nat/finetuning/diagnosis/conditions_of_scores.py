"""Conditions of the scores: they are constant, noisy, do not depend on the answer, or no group differs. Pure."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.conditions_of_held_out import few_held_out
from nat.finetuning.diagnosis.facts import Noise
from nat.finetuning.diagnosis.window import EASY, HARD, Window, share_missing
from nat.finetuning.metrics import ORDER_PAIRS, POSITION_BIAS
from nat.finetuning.rollout_statistics import MIN_REPEATS
from nat.wire.rewards import EQUAL_UP_TO, equal

NOISE = 0.5
"""Share of the variance between rollouts of an example that equal rollouts have, too: above it, a difference in score
more often comes from noise than from the answers."""
NOISE_ALONE = 0.75
"""The same share, by scoring each output again, from which training would take four times the rollouts, if it learned
at all."""
NOISE_TO_LEAVE = 0.2
"""Share of noise that averaging several scores should leave."""
EQUAL_EPOCHS = 5
"""Epochs whose groups are counted before a warning."""
OF_EQUAL_GROUPS: Mapping[str, Any] = {
    "bound": "max_equal_groups",
    "healthy": "groups without a difference below {bound:.0%}",
    "source": "common practice: alarm above 80 %",
    "warns_over": EQUAL_EPOCHS,
    "warns_from": EQUAL_EPOCHS,
}
"""What conditions have in common of which one explains why most groups have no difference."""
ENOUGH_PAIRS = 100
"""Pairs of answers by which a judge's bias is known: some four groups of eight."""
MISSED = 0.05
"""Probability that rollouts without a success leave for the rate of success that is called possible."""
ENOUGH_TO_TELL = 600
"""Rollouts of which that many miss a success in 200 with this probability."""
EITHER_WAY = 0.3
"""Share of the signal that a constant score of 0 or 1 takes by itself: it is the lowest or highest of most scores, so
the examples are likelier to blame."""


DEMONSTRATIONS_FIRST = """\
trajectory_builders:
  demonstrations: {_type: dataset_traj_builder, file_path: demonstrations.jsonl}  # {"messages": [...]} in each line
trainer_adapters:
  imitate: {_type: local_trainer_adapter, llm: LLM, training: {algorithm: sft}}
finetuning:
  phases:  # in place of num_epochs
    - {name: imitate, num_epochs: 3, trajectory_builder: demonstrations, trainer_adapter: imitate}
    - {name: play, num_epochs: 12, trajectory_builder: BUILDER, trainer_adapter: ADAPTER}"""


@condition(
    title="Right answers get the lowest score",
    measure="share with the lowest score of the rollouts whose output is the expected answer, but for case, spaces "
    "and punctuation",
    bound=0.05,
    healthy="below {bound:.0%}",
    source="0 is ideal",
    remedy="Check which field the evaluator reads, and that it compares as a reader would: without case (`exact_match` "
    "has `ignore_case: true`), spaces and punctuation at the ends, also of the dataset's answers.",
)
def right_scored_lowest(window: Window, bound: float) -> Seen | None:
    share, noise = window.where_reported("reward/right_lowest"), window.spread.noise_share or 0.0
    if share <= bound or noise > NOISE:
        return None
    unlike = window.where_reported("reward/right_unlike")
    how = f" ({unlike:.0%} of them differ from it in case, spaces or punctuation)" if unlike else ""
    return Seen(share, f"{share:.0%} of the rollouts with the expected answer have the lowest score{how}")


@condition(
    title="The prompt contains the answer",
    measure="share of the examples whose prompt contains the expected answer and that are always solved, if most "
    "groups have no difference",
    **OF_EQUAL_GROUPS,
    remedy="Look at the prompt of a rollout (`nat runs show latest --epoch 1 --worst 1`): unless the task is to find "
    "the answer there, leave it out.",
)
def answer_shown(window: Window, bound: float) -> Seen | None:
    share = window.where_reported("rollout/answer_shown")
    if window.equal_groups <= bound or share < max(window.hard, window.easy / 2) or not share:
        return None
    return Seen(
        share, f"in {share:.0%} of the examples, the prompt contains the expected answer, and all rollouts solve it"
    )


@condition(
    title="The score is always the same",
    measure="difference between the highest and the lowest score of the run",
    healthy="above 0",
    source="equal scores have an advantage of zero",
    remedy=(
        "Score a good and a bad answer in a test of your own: the evaluator that finetuning.reward_function names must "
        "tell them apart."
    ),
)
def constant_score(window: Window, _bound: float) -> Seen | None:
    known, lowest = window.facts.references, window.lowest
    if not window.constant or lowest is None or (known is not None and not equal([known.right, known.wrong])):
        return None
    seen = f"every one of {sum(window.counts):,} rollouts has the score {lowest:g}"
    if known is not None:
        advice = "If it expects another form than that of the dataset's answers, the examples may be too hard or easy."
        alike = f"the dataset's own answers (mean score {known.right:g}) from those of other examples ({known.wrong:g})"
        return Seen(1.0, f"{seen}, and the evaluator cannot tell {alike}", advice)
    if any(equal([lowest, end]) for end in (0.0, 1.0)):
        return Seen(EITHER_WAY, seen, "If the examples are too hard or too easy, change them or give partial credit.")
    return Seen(1.0, seen)


@condition(
    title="The score does not depend on the answer",
    measure=(
        "share of the score's variance that equal answers have, too, if different answers have no more (F "
        f"test, from {MIN_REPEATS} repeated answers on), or that scoring an output again has, too; share of the groups "
        "whose equal scores are neither the lowest nor the highest, if most groups have no difference"
    ),
    bound="max_equal_groups",
    healthy=f"below {NOISE:.0%}, and groups without a difference below {{bound:.0%}}",
    source="an F test at one standard error; above it, the score counts as noisy",
    warns_over=EQUAL_EPOCHS,
    warns_from=EQUAL_EPOCHS,
    remedy=(
        "Check what the evaluator reads: it must score this rollout's output, not the question, the expected "
        "answer or chance."
    ),
)
def independent_score(window: Window, bound: float) -> Seen | None:
    rescored, noise, between = window.facts.noise, window.spread.noise_share, window.equal_between
    if rescored is not None and rescored.share > NOISE_ALONE:
        return Seen(rescored.share, _scored_again(rescored))
    if rescored is None and noise is not None and window.score_is_chance:
        return Seen(
            noise,
            f"{noise:.0%} of the score's variance is between rollouts with equal answers ({window.spread.repeats} "
            "repeats), and different answers differ no more than these",
        )
    if (
        not window.constant
        and window.equal_groups > bound
        and between >= max(window.hard, window.easy, _by_chance(window))
    ):
        return Seen(
            between,
            f"in {between:.0%} of the groups, different answers have the same score, which is neither the lowest nor "
            "the highest: the score depends on the example alone",
        )
    return None


@condition(
    title="The score is noisy",
    measure=(
        f"share of the score's variance that equal answers have, too (from {MIN_REPEATS} repeated answers on), or that "
        "scoring an output again has, too"
    ),
    bound=NOISE,
    healthy="below {bound:.0%}",
    source="above it, a difference in score is more often noise than merit",
    remedy=(
        "Average several judgements of each answer, let the judge answer at temperature 0, or raise num_generations."
    ),
    despite_learning=True,
)
def noisy_score(window: Window, bound: float) -> Seen | None:
    if window.has_learned and few_held_out.rule(window, bound) is None:
        return None  # noise does no harm, unless it hides the gain from the held-out examples
    rescored, noise = window.facts.noise, window.spread.noise_share
    if rescored is not None:
        if not bound < rescored.share <= NOISE_ALONE:
            return None
        number, factor = scores_to_average(rescored.share), 1 / (1 - rescored.share)
        advice = f"{number} scores of each answer leave little noise; one takes about {factor:.1f} times the rollouts."
        return Seen(rescored.share, _scored_again(rescored), advice)
    if noise is None or noise <= bound or window.score_is_chance:
        return None
    return Seen(
        noise,
        f"{noise:.0%} of the score's variance is between rollouts with equal answers ({window.spread.repeats} repeats)",
    )


@condition(
    title="There is nothing to compare a rollout with",
    measure="rollouts per example and epoch",
    healthy="8; 16 where success is rare",
    source="common practice",
    remedy="Set num_generations of the trajectory builder to 8.",
    settings="trajectory_builders: {BUILDER: {num_generations: 8}}",
)
def single_rollouts(window: Window, _bound: float) -> Seen | None:
    if window.facts.compares != "group" or not 0 < window.generations <= 1:
        return None
    return Seen(1.0, "each example is played once in an epoch, so its score has nothing to be compared with")


@condition(
    title="The curriculum leaves out almost everything",
    measure="share of the groups with a difference in score that the curriculum left out",
    bound=0.9,
    healthy="below {bound:.0%}",
    source="our choice; a curriculum begins with 30 % of the groups",
    remedy="Lower curriculum_learning.min_reward_diff, or raise initial_percentile.",
    settings="finetuning: {curriculum_learning: {min_reward_diff: 0.0, initial_percentile: 1.0}}",
)
def outside_curriculum(window: Window, bound: float) -> Seen | None:
    differing = (epoch.num_groups - epoch.groups_without_difference for epoch in window.epochs)
    share = share_missing(differing, (epoch.filtered_groups for epoch in window.epochs))
    if share <= bound:
        return None
    return Seen(share, f"the curriculum left out {share:.0%} of the groups that have a difference in score")


@condition(
    title="The examples are too hard",
    measure=(
        f"share of the examples with a mean score below {HARD:.0%} of the way from the lowest to the highest, "
        "if most groups have no difference"
    ),
    **OF_EQUAL_GROUPS,
    remedy=(
        "Choose examples that are sometimes solved and sometimes not, give partial credit, say in the prompt exactly "
        "what is wanted, begin with a phase of demonstrations (`algorithm: sft`; 32 of them can do), or start from a "
        "better model; with rare success, raise num_generations to 16."
    ),
    settings=DEMONSTRATIONS_FIRST,
)
def too_hard(window: Window, bound: float) -> Seen | None:
    share = window.hard
    if window.equal_groups <= bound or share < window.easy or not share:
        return None
    others = f", {window.easy:.0%} the highest ({window.highest:g})" if window.easy else ""
    return Seen(
        min(share, window.equal_groups),
        f"{share:.0%} of the examples scored the lowest ({window.lowest:g}) in almost every rollout{others}, and "
        f"{window.equal_groups:.0%} of the groups had no difference{_references(window)}",
        " ".join(filter(None, [_rarity(window), _most_generations(window)])),
    )


@condition(
    title="The examples are too easy",
    measure=(
        f"share of the examples with a mean score above {EASY:.0%} of the way in the first third of the "
        "epochs, if most groups have no difference"
    ),
    **OF_EQUAL_GROUPS,
    remedy="Choose harder examples, or a score that distinguishes good answers from better ones.",
)
def too_easy(window: Window, bound: float) -> Seen | None:
    share = window.easy
    if window.equal_groups <= bound or share <= window.hard:
        return None
    others = f", {window.hard:.0%} the lowest ({window.lowest:g})" if window.hard else ""
    return Seen(
        min(share, window.equal_groups),
        f"{share:.0%} of the examples scored the highest ({window.highest:g}) in almost every rollout from the "
        f"start{others}, and {window.equal_groups:.0%} of the groups had no difference{_references(window)}",
    )


@condition(
    title="Too few rollouts per example",
    measure="share of the groups without a difference, of examples that are sometimes solved",
    **OF_EQUAL_GROUPS,
    remedy="Raise num_generations: to 8, or to 16 where success is rare.",
    settings="trajectory_builders: {BUILDER: {num_generations: GENERATIONS}}",
)
def few_generations(window: Window, bound: float) -> Seen | None:
    share = _by_chance(window)
    if window.equal_groups <= bound or window.constant or not window.several or window.facts.compares != "group":
        return None
    if not any(epoch.examples for epoch in window.epochs) or share < max(
        window.hard, window.easy, window.equal_between
    ):
        return None
    return Seen(
        share,
        f"{window.equal_groups:.0%} of the groups of {window.generations:.0f} rollouts had no difference, most of them "
        "of examples that are sometimes solved",
        _most_generations(window),
    )


@condition(
    title="The judge looks at the order",
    measure=(
        f"how much more often a judge that compares prefers the earlier of two answers; from {ENOUGH_PAIRS} pairs on "
        "that are judged in both orders"
    ),
    bound="max_position_bias",
    healthy="at most {bound:.0%}",
    source="our choice; 0 is ideal",
    remedy="Set the evaluator's both_orders to 1, which takes twice the calls, or use another judge.",
    despite_learning=True,
    warns_over=5,
    settings="eval: {evaluators: {EVALUATOR: {both_orders: 1}}}",
)
def position_bias(window: Window, bound: float) -> Seen | None:
    found = [(own[ORDER_PAIRS], own[POSITION_BIAS]) for own in window.metrics if ORDER_PAIRS in own]
    pairs = sum(count for count, _ in found)
    bias = sum(count * each for count, each in found) / (pairs or 1.0)
    if pairs < ENOUGH_PAIRS or abs(bias) <= bound:
        return None
    return Seen(
        abs(bias),
        f"the judge prefers the {'earlier' if bias > 0 else 'later'} of two answers by {abs(bias):.0%} ({pairs:.0f} "
        "pairs judged in both orders): scores depend on the order",
    )


def _rarity(window: Window) -> str:
    """Whether success is rare, or has not been seen, and how many rollouts would tell."""
    count = sum(epoch.num_trajectories for epoch in window.epochs)
    if not window.constant:
        return f"Success is rare but there: the mean score is {_height(window):.2%} of the way to the highest."
    often = 1 - MISSED ** (1 / count) if count else 1.0
    told = "" if count >= ENOUGH_TO_TELL else f" Play {ENOUGH_TO_TELL} to tell a success in 200 from none."
    return f"In {count} rollouts without a success, one in {1 / often:.0f} may still be one.{told}"


def _height(window: Window) -> float:
    """The mean score, as a share of the way from the lowest to the highest."""
    low, high = window.lowest or 0.0, window.highest or 0.0
    total = sum(epoch.num_trajectories for epoch in window.epochs)
    mean = sum(epoch.avg_reward * epoch.num_trajectories for epoch in window.epochs) / (total or 1)
    return (mean - low) / (high - low)


def _by_chance(window: Window) -> float:
    """Share of the groups that are equal, though their examples are sometimes solved and sometimes not."""
    return window.equal_groups - window.hard - window.easy - window.equal_between


def _references(window: Window) -> str:
    known = window.facts.references
    if known is None:
        return ""
    return f"; the dataset's own answers score {known.right:g}, those of other examples {known.wrong:g}"


def _most_generations(window: Window) -> str:
    most = window.facts.most_generations
    if most is None:
        return ""
    return f"With {most.generations} generations, about {most.share:.0%} of the groups would have a difference."


def _scored_again(noise: Noise) -> str:
    return (
        f"{noise.share:.0%} of the differences within groups are the evaluator's own: {noise.scores} scores of the "
        f"same output have a standard deviation of {noise.deviation:.3g}"
    )


def scores_to_average(noise_share: float) -> int:
    """How many scores of an output to average, so that noise is `NOISE_TO_LEAVE` of the rest; the share is below 1."""
    return max(1, ceil(noise_share / (1 - noise_share) * (1 - NOISE_TO_LEAVE) / NOISE_TO_LEAVE - EQUAL_UP_TO))


OF_SCORES = (
    single_rollouts,
    right_scored_lowest,
    constant_score,
    independent_score,
    noisy_score,
    outside_curriculum,
    answer_shown,
    too_hard,
    too_easy,
    few_generations,
    position_bias,
)
