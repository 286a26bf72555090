"""Conditions of the updates: too large, too small, too few, or learning the wrong thing. Pure."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, median

from nat.finetuning.change import first_third, last_third
from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import EpochRecord, epoch_number

KL, UNASKED = "train/approx_kl", "train/unasked_kl"
"""The KL divergence per token of an epoch's update, and the part of it that its advantages did not ask for, which is
what does harm; other backends do not report that part."""
WEIGHTS = "train/update_ratio"
RATE, USUAL_RATE = "train/learning_rate", "train/usual_learning_rate"
KEPT = "train/kept_share"

KL_TOO_FAR, KL_HARMLESS = 0.3, 0.05
"""Updates that teach a model stay below the second."""
WEIGHTS_TOO_FAR, WEIGHTS_USUAL = 0.02, 0.002
"""Change of the weights in one optimizer step, as a share of their size. A harmless KL divergence outweighs it, since
the steps of a small model's LoRA are larger."""
LEAST_KEPT = 0.25
"""Mean share of an update's way that `max_kl` should leave: of several steps, the last are then taken for nothing."""
USUAL_REACH, LEAST_RATE = 0.2, 0.1
"""What an update usually reaches (see `reach_of`), and the least share of the default learning rate."""
USUAL_ROLLOUTS = 32
"""Rollouts per optimizer step of the defaults; more of them give smoother, but fewer steps."""
LENGTH_DRIFT = 1.25
"""Growth (or its inverse) of the answers over the run."""


@condition(
    title="The updates go too far",
    healthy=f"a KL divergence per token against the advantages below {KL_TOO_FAR:g}, a change of the weights per step "
    f"below {WEIGHTS_TOO_FAR:.0%}, and max_kl keeps {LEAST_KEPT:.0%} of an update",
    remedy="Fewer num_iterations or steps_per_batch, and beta (the KL divergence to the starting model), hold the "
    "policy back, too. An earlier checkpoint may have a better model.",
    without_rollouts=True,
)
def rate_too_high(window: Window, _bound: float) -> Seen | None:
    kept = window.mean(KEPT)
    if found := _updates_too_far(window):
        worst = max(found, key=_kl_of)
        names = {KL: "KL divergence {:.3g} per token", UNASKED: "{:.3g} of it against the advantages"}
        texts = [text.format(worst.metrics[name]) for name, text in names.items() if name in worst.metrics]
        texts += [f"weights changed by {worst.metrics[WEIGHTS]:.2%} a step"] if WEIGHTS in worst.metrics else []
        seen = f"the update of epoch {epoch_number(worst.epoch)} moved the policy too far: {', '.join(texts)}"
        return Seen(max(0.5, 1 - KL_TOO_FAR / max(_kl_of(worst, KL_TOO_FAR), KL_TOO_FAR)), seen, _lower_rate(worst))
    if kept is None or kept >= LEAST_KEPT:
        return None
    seen = f"max_kl keeps {kept:.0%} of an update's way; the rest would move the policy too far"
    return Seen(1 - kept, seen, "Lower the learning rate.")


def _updates_too_far(window: Window) -> Sequence[EpochRecord]:
    """The epochs of the window whose update moved the policy too far; none if the reward could not fall.

    A KL divergence that is large in one epoch alone does not count unless something went wrong since: it has outliers.
    """
    run = window.run
    could_fall = bool(run) and max(e.avg_reward for e in run) > min(e.min_reward for e in run)
    if not could_fall and not window.since_best:
        return []
    found = [epoch for epoch in window.epochs if _kl_of(epoch) > KL_TOO_FAR or _changed_too_much(epoch)]
    certain = len(found) > 1 or any(map(_changed_too_much, found))
    return found if certain or window.since_best or window.fallen else []


def _changed_too_much(epoch: EpochRecord) -> bool:
    return epoch.metrics.get(WEIGHTS, 0.0) > WEIGHTS_TOO_FAR and _kl_of(epoch, KL_TOO_FAR) > KL_HARMLESS


def _kl_of(epoch: EpochRecord, default: float = 0.0) -> float:
    """The KL divergence per token that may do harm, as far as the backend reports it."""
    return epoch.metrics.get(UNASKED, epoch.metrics.get(KL, default))


def _lower_rate(epoch: EpochRecord) -> str:
    """Advice with a learning rate to try: the change of the weights in a step is proportional to the rate."""
    rate, change = epoch.metrics.get(RATE), epoch.metrics.get(WEIGHTS, 0.0)
    if rate is None:
        return "Lower the learning rate."
    factor = min(1 / 10 if _kl_of(epoch) > 1 else 1 / 3, WEIGHTS_USUAL / max(change, WEIGHTS_USUAL))
    return f"Lower the learning rate: it was {rate:.2g} on average in that update, so try {rate * factor:.1g}."


@condition(
    title="The backend does not train what it gets",
    bound=0.5,
    healthy="below {bound:.0%} of the submitted groups with a difference in reward",
    remedy="Rollouts without exact tokens, and with mask_truncated_completions those that hit a token limit, are not "
    "trained on; the rest of their groups may have no other rollout to compare with.",
    without_rollouts=True,
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
    healthy=f"an update can change the outcome of more than {{bound:.0%}} of the rollouts, at more than "
    f"{LEAST_RATE:.0%} of the default learning rate",
    remedy="A warm-up that is longer than the run has the same effect.",
    without_rollouts=True,
)
def rate_too_low(window: Window, bound: float) -> Seen | None:
    reaches = [reach for epoch in window.updated if (reach := reach_of(epoch.metrics)) is not None]
    reach = median(reaches) if reaches else None
    rate, usual = max(window.values(RATE), default=None), max(window.values(USUAL_RATE), default=None)
    shortened = any(kept < 1 for kept in window.values(KEPT))  # then `max_kl` has lowered the rate
    share = None if rate is None or usual is None or shortened else rate / usual
    lost = max(0 if reach is None else 1 - reach / bound, 0 if share is None else 1 - share / LEAST_RATE)
    if lost <= 0:
        return None
    seen = [] if reach is None else [f"an update changes the outcome of at most {max(reach, 1e-4):.2%} of the rollouts"]
    seen += [] if share is None else [f"the learning rate is {share:.1%} of this model's default"]
    if rate is None:
        advice = "Raise the learning rate."
    elif usual is not None and rate < usual / 2:
        advice = f"Use this model's default learning rate, {usual:.2g} ({rate:.2g} was used)."
    else:
        higher = rate * min(1000, USUAL_REACH / max(reach or USUAL_REACH, 1e-6))
        advice = f"Raise the learning rate ({rate:.2g} was used; try {higher:.1g})."
    return Seen(lost, ", and ".join(seen), advice)


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
    of_the_end=True,
    without_rollouts=True,
)
def few_steps(window: Window, bound: float) -> Seen | None:
    count = round(max(1.0, sum(e.metrics.get("train/optimizer_steps", 1.0) for e in window.updated)))
    if not window.updated or count >= bound:
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
    if correlation is None or not tokens or correlation**2 < bound:
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


OF_UPDATES = (untrained, rate_too_low, few_steps, rewards_length, held_out_differs)
