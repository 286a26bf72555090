"""Causes in the updates: they go too far, change nothing, are too few, or learn the wrong thing. Pure."""

from nat.finetuning.diagnosis import fall
from nat.finetuning.diagnosis.cause import Symptom, cause
from nat.finetuning.diagnosis.evidence import Evidence
from nat.finetuning.diagnosis.updates import Updates
from nat.runs.records import epoch_number

LEAST_REACH = 0.02
"""Share of the rollouts whose outcome an update can change; see `Updates.reach` for the bound. Updates of the examples
have .1 to .4."""
USUAL_REACH = 0.2
LEAST_KEPT = 0.25
"""Mean share of an update's way that `max_kl` should leave: of several steps, the last are then taken for nothing."""
LEAST_STEPS = 20
"""Optimizer steps of a whole run. The examples' first clear gain takes 24 steps; the usual warm-up alone takes 5."""
UNTRAINED = 0.5
"""Share of the submitted groups that the backend may leave out."""
LEAST_GROUPS = 2
"""Groups played for each optimizer step: a step on one group follows a single example. The defaults play 4 groups of 8
rollouts, or 2 of 16."""
USUAL_ROLLOUTS = 32
"""Rollouts per optimizer step of the defaults; more of them give smoother, but fewer steps."""
SMALLER_STEPS = (
    f"Leave training.steps_per_batch out: by default, a step has {USUAL_ROLLOUTS} rollouts. Or play fewer examples "
    "in an epoch (examples_per_epoch), and more epochs."
)
LEAST_RATE = 0.1
"""Share of the default learning rate."""
LENGTH_EXPLAINS = 0.5
"""Share of the score's variance that the length explains (the squared correlation): above it, more than all else."""
LENGTH_DRIFT = 1.25
"""Growth (or its inverse) of the answers over the run."""
ENTROPY_LEFT = fall.ENTROPY_LEFT


@cause(
    title="The updates go too far",
    measure=(
        "KL divergence per token of an update against its advantages; change of the weights per step; share of "
        "clipped tokens; share of an update that max_kl keeps"
    ),
    healthy=(
        f"below {fall.KL_TOO_FAR:g}, {fall.WEIGHTS_TOO_FAR:.0%} and {fall.CLIPPED_TOO_MUCH:.0%}; above {LEAST_KEPT:.0%}"
    ),
    source="measured: updates that teach a model stay below 0.05; common practice warns above 0.01 to 0.05",
    remedy=f"{fall.HOLD_BACK} An earlier checkpoint may have a better model.",
    without_rollouts=True,
)
def rate_too_high(evidence: Evidence) -> Symptom | None:
    updates = evidence.updates
    if updates is None:
        return None
    if updates.too_far:
        worst = max(updates.too_far, key=fall.kl_of)
        kl = fall.kl_of(worst, fall.KL_TOO_FAR)
        return Symptom(
            max(0.5, 1 - fall.KL_TOO_FAR / max(kl, fall.KL_TOO_FAR)),
            f"the policy moved too far in {len(updates.too_far)} of {evidence.num_epochs} epochs; in epoch "
            f"{epoch_number(worst.epoch)}: {fall.numbers(worst, [])}",
            fall.lower_rate(worst),
        )
    if updates.kept_share < LEAST_KEPT:
        return Symptom(
            1 - updates.kept_share,
            f"max_kl keeps {updates.kept_share:.0%} of an update's way; the rest would move the policy too far",
            "Lower the learning rate.",
        )
    return None


@cause(
    title="The backend does not train what it gets",
    measure="share of the submitted groups that the backend did not train",
    healthy=f"below {UNTRAINED:.0%}",
    source="our choice; 0 is ideal",
    remedy=fall.NOT_TRAINED,
    without_rollouts=True,
)
def untrained(evidence: Evidence) -> Symptom | None:
    share = evidence.untrained
    return Symptom(share, f"the backend did not train {share:.0%} of the groups") if share > UNTRAINED else None


@cause(
    title="Too few groups per optimizer step",
    measure="groups per optimizer step",
    healthy=f"from {LEAST_GROUPS} on",
    source="the defaults make a step of 32 rollouts; common practice: 8 to 16 groups",
    remedy="Use more examples, or fewer steps_per_batch.",
)
def few_groups(evidence: Evidence) -> Symptom | None:
    updates = evidence.updates
    if updates is None or updates.groups_per_step >= LEAST_GROUPS:
        return None
    groups = updates.groups_per_step
    return Symptom(
        1 - groups / LEAST_GROUPS,
        f"an optimizer step compares {groups:.1f} groups, from {evidence.num_examples} examples in all",
    )


@cause(
    title="The updates change almost nothing",
    measure=(
        "largest share of the rollouts whose outcome an update can change: √(tokens per rollout · KL per "
        "token / 2), median over the updates; learning rate"
    ),
    healthy=f"above {LEAST_REACH:.0%}, and above {LEAST_RATE:.0%} of the default learning rate",
    source="Pinsker's inequality, measured: 10 to 40 % in the examples; [defaults](../concepts/defaults.md)",
    remedy="A warm-up that is longer than the run has the same effect.",
    without_rollouts=True,
)
def rate_too_low(evidence: Evidence) -> Symptom | None:
    updates = evidence.updates
    if updates is None:
        return None
    reach, rate = updates.reach, updates.share_of_usual_rate
    lost = max(0 if reach is None else 1 - reach / LEAST_REACH, 0 if rate is None else 1 - rate / LEAST_RATE)
    if lost <= 0:
        return None
    seen = [] if reach is None else [f"an update changes the outcome of at most {reach:.2%} of the rollouts"]
    if rate is not None:
        seen.append(f"the learning rate is {rate:.1%} of this model's default")
    factor = 1.0 if reach is None else min(1000, USUAL_REACH / max(reach, 1e-6))
    return Symptom(lost, ", and ".join(seen), _higher_rate(updates, factor))


@cause(
    title="Too few optimizer steps",
    measure="optimizer steps of the whole run",
    healthy=f"from {LEAST_STEPS} on",
    source="measured: the first clear gain of examples/tic_tac_toe takes 24",
    remedy="One step on a huge batch moves no further than one on a small batch.",
    of_the_end=True,
    without_rollouts=True,
)
def few_steps(evidence: Evidence) -> Symptom | None:
    updates = evidence.updates
    if updates is None or updates.optimizer_steps >= LEAST_STEPS:
        return None
    huge = updates.rollouts_per_step > 2 * USUAL_ROLLOUTS
    steps = "1 optimizer step," if updates.optimizer_steps == 1 else f"{updates.optimizer_steps} optimizer steps, each"
    return Symptom(
        1 - updates.optimizer_steps / LEAST_STEPS,
        f"the run made {steps} on {updates.rollouts_per_step:.0f} rollouts",
        SMALLER_STEPS if huge else "Train for more epochs.",
    )


@cause(
    title="The model stopped exploring",
    measure="entropy per token at the end, as a share of its highest value",
    healthy=f"above {ENTROPY_LEFT:.0%}",
    source="common practice: alarm at half within twenty steps",
    remedy=fall.EXPLORE,
)
def entropy_collapse(evidence: Evidence) -> Symptom | None:
    entropies = evidence.updates.entropies if evidence.updates else None
    if entropies is None or entropies[1] >= ENTROPY_LEFT * entropies[0]:
        return None
    highest, last = entropies
    return Symptom(1 - last / highest, f"the entropy per token fell from {highest:.3f} to {last:.3f}")


@cause(
    title="The score rewards length",
    measure=(
        "share of the score's variance inside examples that the number of sampled tokens explains, if the "
        f"answers grew (or shrank) by more than {LENGTH_DRIFT - 1:.0%}"
    ),
    healthy=f"below {LENGTH_EXPLAINS:.0%}",
    source="above it, length explains more of the score than all else",
    remedy=(
        "Read the best and the worst rollouts. If the long ones are not better, let the evaluator ignore "
        "length, or subtract a little per token."
    ),
    despite_learning=True,
)
def rewards_length(evidence: Evidence) -> Symptom | None:
    correlation, tokens = evidence.length_correlation, evidence.tokens
    if correlation is None or tokens is None or correlation**2 < LENGTH_EXPLAINS:
        return None
    growth = tokens[1] / max(tokens[0], 1e-9)
    if (growth if correlation > 0 else 1 / max(growth, 1e-9)) < LENGTH_DRIFT:
        return None
    better = "longer" if correlation > 0 else "shorter"
    return Symptom(
        correlation**2,
        f"{better} answers to an example score higher (correlation {correlation:+.2f}), and the sampled tokens of a "
        f"rollout went from {tokens[0]:.0f} to {tokens[1]:.0f}",
    )


@cause(
    title="No number is out of its range",
    measure="reward in the last third of the epochs against the first",
    healthy="a gain of more than two standard errors",
    source="chance makes one of this size in 5 of 100 cases",
    remedy="If it stays flat, read answers of the first and the last epoch, and run `nat eval` on both models.",
    of_the_end=True,
)
def unexplained(evidence: Evidence) -> Symptom | None:
    trend, updates = evidence.trend, evidence.updates
    if trend is None or updates is None or trend.rose or evidence.improved:
        return None
    return Symptom(
        0.1,
        f"the reward in training did not rise in {updates.optimizer_steps} optimizer steps ({trend})",
        f"Train longer. {_higher_rate(updates, 3.0)}",
    )


def _higher_rate(updates: Updates, factor: float) -> str:
    """Advice about the learning rate: this model's default if that is higher, else the rate times `factor`."""
    rate, usual = updates.learning_rate, updates.usual_learning_rate
    if rate is None:
        return "Raise the learning rate."
    if usual is not None and rate < usual / 2:
        return f"Use this model's default learning rate, {usual:.2g} ({rate:.2g} was used)."
    return f"Raise the learning rate ({rate:.2g} was used; try {factor * rate:.1g})."


CAUSES_OF_UPDATES = (untrained, few_groups, rate_too_low, few_steps, entropy_collapse, rewards_length)
