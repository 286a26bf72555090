"""The conditions that keep a run from learning: one table of rules, each with its bound, remedy and texts. Pure.

They stand in the order of a run's stages: rollouts, answers, scores, updates, held-out examples. An update that went
too far comes before the answers, since it breaks them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median
from typing import Any, NamedTuple

from nat.data_models.finetuning import GuardsConfig
from nat.errors import did_you_mean
from nat.finetuning.change import first_third, last_third
from nat.finetuning.diagnosis.window import EASY, HARD, Window
from nat.finetuning.metrics import LOST_CALLS, SAME_ANSWER, SAME_SCORE
from nat.runs.records import EpochRecord, Finding, after_epoch, epoch_number
from nat.runs.rollouts import LeftOutCause
from nat.wire.openai_api import CallStatus
from nat.wire.rewards import equal


class Seen(NamedTuple):
    """The condition in the numbers of one window."""

    share: float
    """Share of the learning signal that reaches this stage of the run and is lost here, from 0 to 1."""
    numbers: str
    """What was seen, as a sentence without its full stop."""
    advice: str = ""
    """What to change in this run, before the remedy that always holds."""


Rule = Callable[[Window, float], Seen | None]
"""Takes the window and the bound; None if the number is in its healthy range, or not known."""


@dataclass(frozen=True)
class Condition:
    """Something that keeps a run from learning."""

    name: str
    title: str
    healthy: str
    """What would be healthy; `{bound:.0%}` stands for the bound."""
    remedy: str
    rule: Rule
    bound: float | str = 0.0
    """The end of the range: a number, or the key of `guards` that sets it."""
    warns_over: int = 0
    """The last epochs over which it is judged after each epoch, to warn; 0 if it never warns."""
    despite_learning: bool = False
    """True if the reward can rise all the same."""

    def range_in(self, guards: GuardsConfig) -> str:
        """The healthy range under these guards."""
        return self.healthy.format(bound=self._bound_in(guards))

    def seen_in(self, window: Window) -> Seen | None:
        """What is out of the healthy range, whether or not the run has learned."""
        return self.rule(window, self._bound_in(window.guards))

    def found(self, window: Window) -> Finding | None:
        """The finding, with the whole share that it takes; None if the window does not show the condition.

        Learning excuses most of them, unless something has gone wrong since.
        """
        excused = window.learned and not self.despite_learning and not window.since_best
        if excused or (seen := self.seen_in(window)) is None:
            return None
        return Finding(
            cause=self.name,
            title=self.title,
            share=min(1.0, max(0.0, seen.share)),
            seen=seen.numbers,
            healthy=self.range_in(window.guards),
            remedy=f"{seen.advice} {self.remedy}".strip(),
        )

    def _bound_in(self, guards: GuardsConfig) -> float:
        return float(dict(guards)[self.bound]) if isinstance(self.bound, str) else self.bound


CONDITIONS: list[Condition] = []
"""All of them, in the order of a run's stages."""


def condition(**fields: Any) -> Callable[[Rule], Condition]:
    """Make a condition of the decorated rule, under the rule's name."""

    def made(rule: Rule) -> Condition:
        CONDITIONS.append(Condition(name=rule.__name__, rule=rule, **fields))
        return CONDITIONS[-1]

    return made


LOST_SHARE = 0.05
"""Share of the calls or rollouts that may be kept out of training. Ideal is 0; retries and greedy sub-agents take
some."""
HALF = 0.5
"""Of a score's variance: above it, a difference more often comes from noise than from the answers."""


# Rollouts


@condition(
    title="Rollouts or tools fail",
    bound=0.1,
    healthy="failed rollouts below {bound:.0%}, errors among the results of tools below half",
    remedy="Fix the first error in failures.txt, or call the tool by hand with the arguments of a rollout "
    "(`nat runs show latest --epoch 1 --worst 1`); a failed rollout is left out, never scored 0.",
    despite_learning=True,
)
def rollouts_failed(window: Window, bound: float) -> Seen | None:
    share = window.left_out(*(cause for cause in LeftOutCause if cause.failure))
    if share > bound:
        error = next((f": {each}" for each in window.last.failures if each.error), "")
        return Seen(share, f"{share:.0%} of the rollouts failed{error}")
    tools = window.mean("rollout/tool_errors") or 0.0
    return Seen(tools, f"{tools:.0%} of the results of tools begin as an error") if tools > HALF else None


@condition(
    title="Answers come from a cache",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the rollouts without a call and with the output of another one of their example",
    remedy="Turn off the cache of the agent, its framework or a proxy in training and validation, so that each rollout "
    "samples an answer of its own.",
)
def answers_cached(window: Window, bound: float) -> Seen | None:
    share, unseen = window.mean("rollout/cached") or 0.0, window.values("rollout/without_calls")
    if share > bound:
        return Seen(share, f"{share:.0%} of the rollouts have no LLM call, and the output of one that had")
    if window.unfinished and unseen and min(unseen) < HALF and unseen[-1] == 1:
        return Seen(1.0, "no rollout of the last epoch has an LLM call, and those of earlier epochs had")
    return None


@condition(
    title="The model's calls are lost",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the rollouts without a call that was seen, or with calls without log probabilities",
    remedy="Take every client from builder.get_llm (or the base URL and key that the run gives), turn off caches of "
    "answers, and serve the model with log probabilities, as `local` and vLLM do.",
)
def calls_lost(window: Window, bound: float) -> Seen | None:
    unseen = (window.mean("rollout/without_calls") or 0.0) - (window.mean("rollout/cached") or 0.0)
    share = max(unseen, window.left_out(LeftOutCause.NO_LOGPROBS), window.per_call("drift/calls_without_logprobs"))
    if share > bound:
        what = "had no LLM call that was seen" if unseen == share else "had calls without log probabilities"
        return Seen(share, f"{share:.0%} of the rollouts {what}")
    if _others_are_called(window) or not (hidden := _undecided(window)):
        return None
    seen = "and no other call was seen: the answers that decide it are not recorded"
    return Seen(hidden, f"{_UNDECIDED.format(hidden)}, {seen}")


@condition(
    title="Other calls are trained than those that decide the score",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the rollouts without a call of `target_functions` and `target_model`, and the "
    "trained tokens decide the score",
    remedy="Set finetuning.target_functions to the functions whose answers decide the score, or to [<workflow>] for "
    "all calls; finetuning.target_model to the LLM that they call.",
)
def wrong_target(window: Window, bound: float) -> Seen | None:
    by_model = window.left_out(LeftOutCause.NO_TARGET_MODEL)
    share = window.left_out(LeftOutCause.NO_TARGET_FUNCTION) + by_model - (window.mean("rollout/without_calls") or 0.0)
    named = f"target_functions: {', '.join(window.target_functions)}; calls: {_counted(window.last.functions)}"
    if by_model:
        meant = did_you_mean(str(window.target_model), window.last.models)
        named = f"target_model: {window.target_model}; calls went to: {_counted(window.last.models)}.{meant}"
    if share > bound:
        return Seen(share, f"{share:.0%} of the rollouts have no call of the target ({named.removesuffix('.')})")
    if not _others_are_called(window) or not (hidden := _undecided(window)):
        return None
    return Seen(hidden, f"{_UNDECIDED.format(hidden)}, so other calls decide it ({named})")


_UNDECIDED = "{:.0%} of the score's variance is between rollouts whose trained tokens are equal"


def _undecided(window: Window) -> float:
    """Share of the variance that the trained tokens do not decide, and the outputs do; 0 if they decide most of it."""
    hidden = window.noise("row_") or 0.0
    return hidden if hidden - (window.noise() or 0.0) > HALF else 0.0


def _others_are_called(window: Window) -> bool:
    """True if a fair part of the sampled tokens is not trained."""
    trained = window.mean("rollout/trained_tokens")
    return trained is not None and trained < 1 - LOST_SHARE


def _counted(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(calls.items()))


@condition(
    title="The agent changes the sampling",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the calls with top_p, penalties, temperature 0 or an unreported temperature",
    remedy="Let the agent sample at temperature 1 without top_p, top_k and penalties, or set "
    "finetuning.sampling_in_training: {temperature: 1.0}, which replaces them in training only.",
)
def sampling_changed(window: Window, bound: float) -> Seen | None:
    untrained = max(window.left_out(LeftOutCause.UNTRAINABLE_SAMPLING), window.per_call("drift/untrainable_calls"))
    share = max(untrained, window.per_call("drift/untempered_calls"))
    options = Counter({how: count for (_, how), count in window.last.untrainable.items()})
    how = f", sampled with {options.most_common(1)[0][0]}" if options else ""
    effect = "cannot be trained on" if untrained == share else "are trained at another temperature than sampled"
    return Seen(share, f"{share:.0%} of the calls {effect}{how}") if share > bound else None


# An update that breaks the answers

KL, UNASKED = "train/approx_kl", "train/unasked_kl"
"""The KL divergence per token of an epoch's update, and the part of it that its advantages did not ask for, which is
what does harm; other backends do not report that part."""
RATE, USUAL_RATE = "train/learning_rate", "train/usual_learning_rate"
KEPT = "train/kept_share"
LEAST_KEPT = 0.25
"""Mean share of an update's way that `max_kl` should leave: of several steps, the last are then taken for nothing."""
USUAL_CHANGE = 0.002
"""Change of the weights in one optimizer step, as a share of their size."""
CERTAINLY_TOO_FAR = 1.0
"""A KL divergence that one update alone proves; a smaller one may be an outlier."""


@condition(
    title="The updates go too far",
    bound=0.3,
    healthy=f"a KL divergence per token against the advantages below {{bound:g}}, and max_kl keeps {LEAST_KEPT:.0%} of "
    "an update",
    remedy="Fewer num_iterations or steps_per_batch, and beta (the KL divergence to the starting model), hold the "
    "policy back, too. An earlier checkpoint may have a better model.",
)
def rate_too_high(window: Window, bound: float) -> Seen | None:
    far, kept = [epoch for epoch in window.epochs if _kl_of(epoch) > bound], window.mean(KEPT)
    worst = max(far, key=_kl_of, default=None)
    certain = len(far) > 1 or window.since_best or window.fallen
    if worst is not None and window.could_fall and (certain or _kl_of(worst) > CERTAINLY_TOO_FAR):
        names = {KL: "KL divergence {:.3g} per token", UNASKED: "{:.3g} of it against the advantages"}
        texts = (text.format(worst.metrics[name]) for name, text in names.items() if name in worst.metrics)
        seen = f"the update of epoch {epoch_number(worst.epoch)} moved the policy too far: {', '.join(texts)}"
        return Seen(max(0.5, 1 - bound / _kl_of(worst)), seen, _lower_rate(worst))
    if kept is None or kept >= LEAST_KEPT:
        return None
    seen = f"max_kl keeps {kept:.0%} of an update's way; the rest would move the policy too far"
    return Seen(1 - kept, seen, "Lower the learning rate.")


def _kl_of(epoch: EpochRecord) -> float:
    """The KL divergence per token that may do harm, as far as the backend reports it."""
    return epoch.metrics.get(UNASKED, epoch.metrics.get(KL, 0.0))


def _lower_rate(epoch: EpochRecord) -> str:
    """Advice with a learning rate to try: the change of the weights in a step is proportional to the rate."""
    rate, change = epoch.metrics.get(RATE), epoch.metrics.get("train/update_ratio", 0.0)
    if rate is None:
        return "Lower the learning rate."
    factor = min(1 / 10 if _kl_of(epoch) > 1 else 1 / 3, USUAL_CHANGE / max(change, USUAL_CHANGE))
    return f"Lower the learning rate: it was {rate:.2g} on average in that update, so try {rate * factor:.1g}."


# Answers

ALIKE = 0.8
"""Share of the answers to different prompts that may be the same."""
AT_LOWEST = 0.9
"""Share of the truncated rollouts with the lowest score from which on the limit decides the score, if fewer of the
whole ones have it."""
_IMITATE = "If rows have answers, imitate these first (`nat runs imitate latest` writes the file and the YAML)."


@condition(
    title="The answers are nearly all alike",
    bound="max_entropy_drop",
    healthy=f"below {ALIKE:.0%} of the answers to different prompts the same, unless their score is near the highest, "
    "and an entropy per token that falls by less than {bound:.0%} from its highest value",
    remedy=f"{_IMITATE} Go on from a checkpoint before; lower the learning rate, or raise epsilon_high or beta (the KL "
    "divergence to the starting model).",
    warns_over=21,
    despite_learning=True,
)
def answers_alike(window: Window, bound: float) -> Seen | None:
    said = [
        (epoch.metrics[SAME_ANSWER], epoch.metrics[SAME_SCORE], f"of the answers in epoch {epoch_number(epoch.epoch)}")
        for epoch in window.epochs[-1:]
        if SAME_SCORE in epoch.metrics and epoch.played and not epoch.relative
    ]
    for validation in window.validations[-1:]:
        if (common := validation.commonest) is not None and common.score is not None:
            where = f"of the held-out answers {after_epoch(validation.epoch)} ({common.text!r})"
            said.append((common.share, common.score, where))
    share, score, where = max(said, default=(0.0, 0.0, ""))
    if share > ALIKE and window.height(score) <= EASY:
        return Seen(share * (1 - window.height(score)), f"{share:.0%} {where} are, or begin, the same")
    values = window.values("train/entropy")
    now = fmean(last_third(values)[-3:]) if values else 0.0  # the entropy of one epoch depends on its examples
    if (window.learned and not window.since_best) or not values or now >= (1 - bound) * max(values):
        return None
    return Seen(1 - now / max(values), f"the entropy per token fell from {max(values):.3f} to {now:.3f}")


@condition(
    title="Answers are cut off",
    bound="max_truncated",
    healthy="below {bound:.0%} of the rollouts at a token limit, or most of these above the lowest score",
    remedy="Raise the LLM's max_tokens. With mask_truncated_completions such rollouts are kept out of training.",
    warns_over=1,
)
def truncation(window: Window, bound: float) -> Seen | None:
    share, cut = window.mean("rollout/truncated") or 0.0, window.mean("reward/truncated_lowest")
    whole = window.mean("reward/whole_lowest") if share <= 1 - LOST_SHARE else None
    if share <= bound or (window.constant and not equal([0.0, window.lowest])):
        return None
    if (cut is not None and cut < AT_LOWEST) or (whole is not None and whole >= AT_LOWEST):
        return None
    others = "" if whole is None else f", of the whole answers {whole:.0%}"
    lowest = f"{1.0 if cut is None else cut:.0%} of these have the lowest score{others}"
    return Seen(share, f"{share:.0%} of the rollouts hit a token limit, and {lowest}")


_ANOTHER_FORMAT = "If the model's own format of calls is another, set `response_template` of the LLM."
_OF_LOST_CALLS: Mapping[str, str] = {
    "cut_off": "Raise the LLM's max_tokens.",
    CallStatus.UNCLOSED: _ANOTHER_FORMAT,
    CallStatus.MALFORMED: _ANOTHER_FORMAT,
    CallStatus.UNKNOWN_TOOL: "Name the offered tools in the prompt.",
    CallStatus.NO_FORMAT: "Take a model whose chat template shows tools and writes calls (`nat fits MODEL` tells), or "
    "describe the calls in the prompt and in `response_template` of the LLM.",
}
"""Why the call of an answer could not be used, and what to do."""


@condition(
    title="Tool calls cannot be used",
    bound=0.1,
    healthy="below {bound:.0%} of the answers, unless the cause is `truncation`",
    remedy="`nat runs show latest --epoch 1 --worst 1` prints what the model writes; see start/your_model of the docs.",
    warns_over=1,
)
def tool_calls_unread(window: Window, bound: float) -> Seen | None:
    explained = {"cut_off"} if truncation.found(window) else set()
    found = {cause: round(sum(window.values(f"{LOST_CALLS}{cause}"))) for cause in _OF_LOST_CALLS.keys() - explained}
    lost, most = sum(found.values()), max(found, key=lambda cause: found[cause])
    if lost <= bound * window.calls:
        return None
    listed = ", ".join(f"{cause.replace('_', ' ')} {count}" for cause, count in sorted(found.items()) if count)
    seen = f"{lost} of {window.calls:.0f} answers have a tool call that could not be used: {listed}"
    return Seen(lost / window.calls, seen, _OF_LOST_CALLS[most])


# Scores

EITHER_WAY = 0.3
"""Share of the signal that a constant score of 0 or 1 takes by itself: it is the lowest or highest of most scores, so
the examples are likelier to blame."""
_OF_EQUAL_GROUPS: Mapping[str, Any] = {"bound": "max_equal_groups", "warns_over": 5}
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
    **_OF_EQUAL_GROUPS,
    healthy=f"below {HALF:.0%} of the score's variance between rollouts with equal answers, and groups without a "
    "difference below {bound:.0%}",
    remedy="Check what the evaluator reads: it must score this rollout's output, not the question, the expected answer "
    "or chance. Of a noisy judge, average several judgements, or let it answer at temperature 0.",
)
def independent_score(window: Window, bound: float) -> Seen | None:
    noise = window.noise() or 0.0
    if noise > HALF:
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
    **_OF_EQUAL_GROUPS,
    healthy=f"groups without a difference below {{bound:.0%}}, or few examples with a mean score below {HARD:.0%} of "
    "the way from the lowest to the highest",
    remedy=f"{_IMITATE} Else choose examples that are sometimes solved and sometimes not, give partial credit, say in "
    "the prompt exactly what is wanted, write some 32 demonstrations, or start from a better model; where success is "
    "rare, play 16 generations of each example.",
)
def too_hard(window: Window, bound: float) -> Seen | None:
    share, equal_groups = window.hard, window.equal_groups
    if equal_groups <= bound or share < window.easy or not share:
        return None
    seen = f"{share:.0%} of the examples scored the lowest ({window.lowest:g}) in almost every rollout"
    return Seen(min(share, equal_groups), f"{seen}, and {equal_groups:.0%} of the groups had no difference")


@condition(
    title="The examples are too easy",
    **_OF_EQUAL_GROUPS,
    healthy=f"groups without a difference below {{bound:.0%}}, or few examples with a mean score above {EASY:.0%} of "
    "the way in the first third of the epochs",
    remedy="Choose harder examples, or a score that distinguishes good answers from better ones.",
)
def too_easy(window: Window, bound: float) -> Seen | None:
    share, equal_groups = window.easy, window.equal_groups
    if equal_groups <= bound or share <= window.hard:
        return None
    seen = f"{share:.0%} of the examples scored the highest ({window.highest:g}) in almost every rollout from the start"
    return Seen(min(share, equal_groups), f"{seen}, and {equal_groups:.0%} of the groups had no difference")


# Updates

USUAL_REACH = 0.2
"""What an update usually reaches (see `reach_of`)."""
USUAL_ROLLOUTS = 32
"""Rollouts per optimizer step of the defaults; more of them give smoother, but fewer steps."""
LENGTH_DRIFT = 1.25
"""Growth (or its inverse) of the answers over the run."""


@condition(
    title="The backend does not train what it gets",
    bound=0.5,
    healthy="below {bound:.0%} of the submitted groups with a difference in reward",
    remedy="Rollouts without exact tokens, and with mask_truncated_completions those that hit a token limit, are not "
    "trained on; the rest of their groups may have no other rollout to compare with.",
    warns_over=1,
)
def untrained(window: Window, bound: float) -> Seen | None:
    submitted = sum(
        min(e.filtered_groups, e.num_groups - e.groups_without_difference * (window.compares == "group"))
        for e in window.epochs
    )
    share = 1 - sum(e.trained_groups for e in window.epochs) / submitted if submitted else 0.0
    text = f"the backend did not train {share:.0%} of the {submitted} groups that could teach"
    return Seen(share, text) if share > bound else None


@condition(
    title="The updates change almost nothing",
    bound=0.02,
    healthy="an update can change the outcome of more than {bound:.0%} of the rollouts",
    remedy="A warm-up that is longer than the run has the same effect.",
)
def rate_too_low(window: Window, bound: float) -> Seen | None:
    reaches = [reach for epoch in window.updated if (reach := reach_of(epoch.metrics)) is not None]
    reach = median(reaches) if reaches else bound
    if reach >= bound:
        return None
    rate, usual = max(window.values(RATE), default=None), max(window.values(USUAL_RATE), default=None)
    if rate is None:
        advice = "Raise the learning rate."
    elif usual is not None and rate < usual / 2:
        advice = f"Use this model's default learning rate, {usual:.2g} ({rate:.2g} was used)."
    else:
        higher = rate * min(1000, USUAL_REACH / max(reach, 1e-6))
        advice = f"Raise the learning rate ({rate:.2g} was used; try {higher:.1g})."
    seen = f"an update changes the outcome of at most {max(reach, 1e-4):.2%} of the rollouts"
    return Seen(1 - reach / bound, seen, advice)


def reach_of(metrics: Mapping[str, float]) -> float | None:
    """√(tokens per rollout · KL per token / 2), the largest share of the rollouts whose outcome an update can change.

    By Pinsker's inequality; the mean reward changes by at most this share of the rewards' range.
    """
    names = (KL, "train/trained_tokens", "train/trained_rollouts")
    if any(name not in metrics for name in names):
        return None
    divergence, tokens, rollouts = (metrics[name] for name in names)
    return min(1.0, sqrt(max(0.0, divergence) * tokens / max(1.0, rollouts) / 2))


@condition(
    title="Too few optimizer steps",
    bound=20,
    healthy="from {bound:.0f} on: the first clear gain of examples/tic_tac_toe takes 24, and the warm-up alone 5",
    remedy="One step on a huge batch moves no further than one on a small batch.",
)
def few_steps(window: Window, bound: float) -> Seen | None:
    count = round(max(1.0, sum(e.metrics.get("train/optimizer_steps", 1.0) for e in window.updated)))
    if not window.ended or not window.updated or count >= bound:
        return None
    rollouts = sum(epoch.filtered_trajectories for epoch in window.updated) / count
    large = rollouts > 2 * USUAL_ROLLOUTS
    advice = "Leave training.steps_per_batch out, or play fewer examples in more epochs." if large else ""
    seen = f"the run made {count} optimizer steps, each on {rollouts:.0f} rollouts"
    return Seen(1 - count / bound, seen, advice or "Train for more epochs.")


@condition(
    title="The score rewards length",
    bound=0.5,
    healthy="below {bound:.0%} of the score's variance inside examples explained by the number of sampled tokens, or "
    f"answers that grow (or shrink) by less than {LENGTH_DRIFT - 1:.0%}",
    remedy="Read the best and the worst rollouts. If the long ones are not better, let the evaluator ignore length, or "
    "subtract a little per token.",
    despite_learning=True,
)
def rewards_length(window: Window, bound: float) -> Seen | None:
    correlation, tokens = window.mean("reward/length_correlation"), window.values("rollout/completion_tokens")
    if not window.played or correlation is None or not tokens or correlation**2 < bound:
        return None
    before, after = fmean(first_third(tokens)), fmean(last_third(tokens))
    growth = after / max(before, 1e-9)
    if (growth if correlation > 0 else 1 / max(growth, 1e-9)) < LENGTH_DRIFT:
        return None
    better = f"{'longer' if correlation > 0 else 'shorter'} answers to an example score higher"
    grew = f"the sampled tokens of a rollout went from {before:.0f} to {after:.0f}"
    return Seen(correlation**2, f"{better} (correlation {correlation:+.2f}), and {grew}")


@condition(
    title="The held-out examples do not gain what the training examples do",
    bound=0.5,
    healthy="the 95 % interval of the held-out gain reaches {bound:.0%} of the gain in training",
    remedy="If they are of another kind, split one set of examples at random. If the model learns its own examples "
    "only, train on more of them or for fewer epochs, set beta, and read the held-out answers: it may have found a "
    "flaw of the evaluator.",
    despite_learning=True,
)
def held_out_differs(window: Window, bound: float) -> Seen | None:
    held_out, change = window.held_out, window.change
    if held_out is None or change is None or not window.gained:
        return None
    low, high = held_out.interval
    if high >= bound * min(change.gain, window.highest - held_out.before):  # near the highest score, it could gain less
        return None
    gain = f"the held-out score {held_out.difference:+.3f} (95 % interval {low:+.3f} to {high:+.3f})"
    return Seen(1.0, f"the reward in training gained {change.gain:+.3f}, {gain}")
