"""Conditions of the updates: they change nothing, are too few, or learn the wrong thing. Pure."""

from collections.abc import Mapping
from math import fsum, sqrt
from statistics import fmean, median

from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.trend import first_third, last_third, means
from nat.finetuning.diagnosis.window import Window, share_missing
from nat.finetuning.rollout_statistics import STANDARD_ERRORS

ENTROPY = "train/entropy"
RATE, USUAL_RATE = "train/learning_rate", "train/usual_learning_rate"
TEACHER = "train/teacher_kl"
USUAL_REACH = 0.2
USUAL_ROLLOUTS = 32
"""Rollouts per optimizer step of the defaults; more of them give smoother, but fewer steps."""
SMALLER_STEPS = (
    f"Leave training.steps_per_batch out: by default, a step has {USUAL_ROLLOUTS} rollouts. Or play fewer examples "
    "in an epoch (examples_per_epoch), and more epochs."
)
LEAST_RATE = 0.1
"""Share of the default learning rate."""
LENGTH_DRIFT = 1.25
"""Growth (or its inverse) of the answers over the run."""
ENTROPY_EPOCHS = 20
"""Span within which a fall of the entropy is warned of."""
ENTROPY_MEAN = 3
"""Epochs whose mean entropy is compared, at most a third of them, since that of one epoch depends on its examples."""
TEACHER_EPOCHS = 5
"""Epochs at the beginning and at the end whose divergence from the teacher is compared."""
SAME_MODEL = 1e-4
"""Divergence from the teacher, in nats per token, that rounding makes."""


@condition(
    title="The backend does not train what it gets",
    measure="share of the submitted groups with a difference in reward that the backend did not train",
    bound=0.5,
    healthy="below {bound:.0%}",
    source="our choice; 0 is ideal",
    remedy=(
        "Rollouts without exact tokens, and with mask_truncated_completions those that hit a token limit, are not "
        "trained on; the rest of their groups may have no other rollout to compare with."
    ),
    without_rollouts=True,
    warns_over=1,
)
def untrained(window: Window, bound: float) -> Seen | None:
    all_groups = window.facts.compares != "group"
    submitted = [
        e.filtered_groups if all_groups else min(e.filtered_groups, e.num_groups - e.groups_without_difference)
        for e in window.epochs
    ]
    share = share_missing(submitted, (e.trained_groups for e in window.epochs))
    text = f"the backend did not train {share:.0%} of the {sum(submitted)} groups that could teach"
    return Seen(share, text) if share > bound else None


@condition(
    title="Too few groups per optimizer step",
    measure="groups per optimizer step",
    bound=2,
    healthy="from {bound:.0f} on",
    source=(
        "a step on one group follows a single example; the defaults make a step of 4 groups of 8 rollouts, or 2 of 16; "
        "common practice: 8 to 16 groups"
    ),
    remedy="Use more examples, or fewer steps_per_batch.",
)
def few_groups(window: Window, bound: float) -> Seen | None:
    groups = _groups_per_step(window)
    if groups is None or groups >= bound:
        return None
    examples = {example for epoch in window.epochs for example in epoch.examples}
    return Seen(
        1 - groups / bound,
        f"an optimizer step compares {groups:.1f} groups, from {len(examples)} examples in all",
    )


def _groups_per_step(window: Window) -> float | None:
    """The mean over the updates; without one, a step could compare all groups of an epoch."""
    if not window.updated:
        return fmean(epoch.num_groups for epoch in window.epochs) if window.epochs else None
    taken = [
        epoch.metrics.get("train/optimizer_steps", 1.0) + epoch.metrics.get("train/skipped_steps", 0.0)
        for epoch in window.updated
    ]
    return fmean(epoch.num_groups / max(1.0, count) for epoch, count in zip(window.updated, taken, strict=True))


LEAST_SHOWN = 0.001
"""Smaller shares are shown as less than this one."""


@condition(
    title="The updates change almost nothing",
    measure=(
        "largest share of the rollouts whose outcome an update can change: √(tokens per rollout · KL per "
        "token / 2), median over the updates; learning rate"
    ),
    bound=0.02,
    healthy=f"above {{bound:.0%}}, and above {LEAST_RATE:.0%} of the default learning rate",
    source="Pinsker's inequality, measured: 10 to 40 % in the examples; [defaults](../understand/defaults.md)",
    remedy="A warm-up that is longer than the run has the same effect.",
    without_rollouts=True,
    settings="trainer_adapters: {ADAPTER: {training: {learning_rate: LEARNING_RATE}}}",
)
def rate_too_low(window: Window, bound: float) -> Seen | None:
    reaches = [reach for epoch in window.updated if (reach := reach_of(epoch.metrics)) is not None]
    reach, (rate, usual) = median(reaches) if reaches else None, _rates(window)
    share = None if rate is None or usual is None or window.shortened else rate / usual  # `max_kl` has lowered it
    lost = max(0 if reach is None else 1 - reach / bound, 0 if share is None else 1 - share / LEAST_RATE)
    if lost <= 0:
        return None
    seen = [] if reach is None else [f"an update changes the outcome of at most {max(reach, 1e-4):.2%} of the rollouts"]
    if share is not None:
        size = f"{share:.1%}" if share >= LEAST_SHOWN else f"less than {LEAST_SHOWN:.1%}"
        seen.append(f"the learning rate is {size} of this model's default")
    factor = 1.0 if reach is None else min(1000, USUAL_REACH / max(reach, 1e-6))
    return Seen(lost, ", and ".join(seen), *_higher_rate(window, factor))


def reach_of(metrics: Mapping[str, float]) -> float | None:
    """√(tokens per rollout · KL per token / 2), the largest share of the rollouts whose outcome an update can change.

    By Pinsker's inequality; the mean reward changes by at most this share of the rewards' range.
    """
    names = ("train/approx_kl", "train/trained_tokens", "train/trained_rollouts")
    if any(name not in metrics for name in names):
        return None
    divergence, tokens, rollouts = (metrics[name] for name in names)
    return min(1.0, sqrt(max(0.0, divergence) * tokens / max(1.0, rollouts) / 2))


@condition(
    title="Too few optimizer steps",
    measure="optimizer steps of the whole run",
    bound=20,
    healthy="from {bound:.0f} on",
    source="measured: the first clear gain of examples/tic_tac_toe takes 24, and the usual warm-up alone takes 5",
    remedy="One step on a huge batch moves no further than one on a small batch.",
    of_the_end=True,
    without_rollouts=True,
    settings="finetuning: {num_epochs: EPOCHS}",
)
def few_steps(window: Window, bound: float) -> Seen | None:
    count = window.optimizer_steps
    if not window.updated or count >= bound:
        return None
    rollouts = sum(epoch.filtered_trajectories for epoch in window.updated) / count
    steps = "1 optimizer step," if count == 1 else f"{count} optimizer steps, each"
    return Seen(
        1 - count / bound,
        f"the run made {steps} on {rollouts:.0f} rollouts",
        SMALLER_STEPS if rollouts > 2 * USUAL_ROLLOUTS else "Train for more epochs.",
    )


@condition(
    title="The model stopped exploring",
    measure=f"fall of the entropy per token, in the mean of {ENTROPY_MEAN} epochs, from its highest value",
    bound="max_entropy_drop",
    healthy="a fall by less than {bound:.0%}",
    source="common practice: alarm at half within twenty steps",
    remedy="Raise epsilon_high or beta (the KL divergence to the starting model), or lower the learning rate.",
    warns_over=ENTROPY_EPOCHS + 1,
    settings="trainer_adapters: {ADAPTER: {training: {epsilon_high: 0.4, beta: 0.01}}}",
)
def entropy_collapse(window: Window, bound: float) -> Seen | None:
    values = window.values(ENTROPY)
    found = means(values, min(ENTROPY_MEAN, max(1, len(values) // 3)))
    if not found or found[-1] >= (1 - bound) * max(found):
        return None
    return Seen(1 - found[-1] / max(found), f"the entropy per token fell from {max(found):.3f} to {found[-1]:.3f}")


@condition(
    title="The score rewards length",
    measure=(
        "share of the score's variance inside examples that the number of sampled tokens explains, if the "
        f"answers grew (or shrank) by more than {LENGTH_DRIFT - 1:.0%}"
    ),
    bound=0.5,
    healthy="below {bound:.0%}",
    source="above it, length explains more of the score than all else",
    remedy=(
        "Read the best and the worst rollouts. If the long ones are not better, let the evaluator ignore "
        "length, or subtract a little per token."
    ),
    despite_learning=True,
)
def rewards_length(window: Window, bound: float) -> Seen | None:
    correlation = window.mean("reward/length_correlation")
    tokens = [own["rollout/completion_tokens"] for own in window.metrics if "rollout/completion_tokens" in own]
    if correlation is None or not tokens or correlation**2 < bound:
        return None
    before, after = fmean(first_third(tokens)), fmean(last_third(tokens))
    growth = after / max(before, 1e-9)
    if (growth if correlation > 0 else 1 / max(growth, 1e-9)) < LENGTH_DRIFT:
        return None
    better = "longer" if correlation > 0 else "shorter"
    return Seen(
        correlation**2,
        f"{better} answers to an example score higher (correlation {correlation:+.2f}), and the sampled tokens of a "
        f"rollout went from {before:.0f} to {after:.0f}",
    )


@condition(
    title="The teacher is the model itself",
    measure="divergence of the sampled tokens from the teacher in the first epoch, in nats per token",
    bound=SAME_MODEL,
    healthy="above {bound:g}",
    source="rounding makes less",
    remedy="Name another teacher.",
    warns_over=1,
)
def same_teacher(window: Window, bound: float) -> Seen | None:
    first = next((epoch.metrics[TEACHER] for epoch in window.run if TEACHER in epoch.metrics), None)
    if first is None or abs(first) >= bound:
        return None
    return Seen(
        1.0,
        f"the teacher gives the sampled tokens the probabilities that the model gives them (divergence {first:.2g} "
        "nats per token): it is the same model, so there is nothing to learn",
    )


@condition(
    title="The model does not approach its teacher",
    measure=f"divergence from the teacher in the last {TEACHER_EPOCHS} epochs against the first {TEACHER_EPOCHS}",
    bound=0.05,
    healthy="below that of the first epochs, or below {bound:g}",
    source="our choice: nearer, there is little left to learn",
    remedy="Lower the learning rate if it jumps, raise it or max_kl if it stands still.",
    warns_over=1,
)
def far_from_teacher(window: Window, bound: float) -> Seen | None:
    found = [epoch.metrics[TEACHER] for epoch in window.run if TEACHER in epoch.metrics]
    if len(found) < 2 * TEACHER_EPOCHS or abs(found[0]) < SAME_MODEL:
        return None
    first, now = fmean(found[:TEACHER_EPOCHS]), fmean(found[-TEACHER_EPOCHS:])
    if now < max(first, bound):
        return None
    return Seen(
        0.5,
        f"the divergence from the teacher does not fall: {first:.3f} nats per token in the first {TEACHER_EPOCHS} "
        f"epochs and {now:.3f} in the last {TEACHER_EPOCHS}",
    )


@condition(
    title="No number is out of its range",
    measure="reward in the last third of the epochs against the first",
    healthy="a gain of more than two standard errors",
    source="chance makes one of this size in 5 of 100 cases",
    remedy="If it stays flat, read answers of the first and the last epoch, and run `nat eval` on both models.",
    alone=True,
    of_the_end=True,
)
def unexplained(window: Window, _bound: float) -> Seen | None:
    trend = window.trend
    if trend is None or not window.updated or trend.rose or window.improved:
        return None
    possible, chance = possible_gain(window), STANDARD_ERRORS * trend.error
    seen = f"the reward in training did not rise in {window.optimizer_steps} optimizer steps ({trend})"
    if possible is None:
        return Seen(0.1, seen, f"Train longer. {_higher_rate(window, 3.0)[0]}")
    seen += f"; these could raise it by {possible:.2g} at the most, and only more than {chance:.2g} would be seen"
    if possible >= chance:
        return Seen(0.1, seen, "So they learned something else than this score, or noise.")
    epochs = len(window.epochs) * (chance / possible) ** (2 / 3)
    return Seen(0.1, seen, f"So more epochs would tell, {epochs:.0f} or more. {_higher_rate(window, 3.0)[0]}")


def possible_gain(window: Window) -> float | None:
    """The most by which all updates together can have raised the mean reward; None if it is not known.

    An update with divergence D per rollout raises it by at most √(2 D) standard deviations of the reward inside
    examples (Cauchy-Schwarz: E'[R] - E[R] = Cov(R, w), where the variance of the weights w is about 2 D).
    """
    gains = [
        2 * reach * sqrt(epoch.metrics["reward/example_variance"])
        for epoch in window.updated
        if (reach := reach_of(epoch.metrics)) is not None and "reward/example_variance" in epoch.metrics
    ]
    return fsum(gains) if gains and any(gains) else None


def _higher_rate(window: Window, factor: float) -> tuple[str, float | None]:
    """Advice with the learning rate to try: this model's default if that is higher, else the rate times `factor`."""
    rate, usual = _rates(window)
    if rate is None:
        return "Raise the learning rate.", None
    if usual is not None and rate < usual / 2:
        return f"Use this model's default learning rate, {usual:.2g} ({rate:.2g} was used).", usual
    higher = float(f"{factor * rate:.1g}")
    return f"Raise the learning rate ({rate:.2g} was used; try {higher:g}).", higher


def _rates(window: Window) -> tuple[float | None, float | None]:
    """The highest mean learning rate of an update, and the default for these weights."""
    found = ([e.metrics[name] for e in window.updated if name in e.metrics] for name in (RATE, USUAL_RATE))
    rate, usual = (max(values, default=None) for values in found)
    return rate, usual


OF_UPDATES = (
    untrained,
    few_groups,
    rate_too_low,
    few_steps,
    entropy_collapse,
    rewards_length,
    same_teacher,
    far_from_teacher,
)
