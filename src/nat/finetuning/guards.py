"""Checks that end a run which cannot learn, each with its numbers and a remedy.

Pure: the trainer calls them in each epoch and lets them raise. Warnings are in `nat.finetuning.alarms`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from math import sqrt

from nat.data_models.finetuning import (
    GuardsConfig,
    RewardFunctionConfig,
    TrainingJobStatus,
    TrainingStatusEnum,
    Trajectory,
    TrajectoryCollection,
)
from nat.data_models.rollout_failure import FailureCount
from nat.data_models.score import score_problem
from nat.errors import (
    ConfigError,
    InvalidTrajectories,
    NoLearningSignal,
    NoTrajectories,
    RewardCollapse,
    TooManyFailures,
    TrainingFailed,
    UntrainableSampling,
    did_you_mean,
)
from nat.eval.failures import remedy_of
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.conditions_of_large_updates import rate_too_high
from nat.finetuning.diagnosis.conditions_of_rollouts import calls_lost, stale_rollouts, wrong_target
from nat.finetuning.diagnosis.conditions_of_scores import ENOUGH_TO_TELL, too_hard
from nat.finetuning.diagnosis.conditions_of_updates import untrained
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.fall import explanation_of, explanation_of_fall, with_explanation
from nat.finetuning.diagnosis.window import Window, share_of_equal
from nat.finetuning.epoch import reported_metrics
from nat.finetuning.sampling import remedy
from nat.runs.records import EpochRecord, Finding, epochs_text
from nat.runs.rollouts import LeftOutCause, RolloutTally
from nat.wire.training import Compares

Explain = Callable[[], Finding | None]
"""Finds an earlier update that may have broken the model; called only before an error."""

_STANDARD_ERRORS = 3.0
"""A fall of the mean reward by less than this many standard errors may be chance."""
_MOST_WITHOUT = 10
"""Epochs without a success after which a run ends, however few rollouts they have."""


def check_credit(reward: RewardFunctionConfig | None, collected: TrajectoryCollection) -> None:
    """Raise ConfigError if single answers are to be credited, and a trajectory has no shaped rewards.

    Only its trajectories show whether a builder gives them.
    """
    if reward is None or reward.credit == "outcome":
        return
    trajectories = [trajectory for group in collected.trajectories for trajectory in group]
    if without := sum(trajectory.shaped_rewards is None for trajectory in trajectories):
        found = f"'{reward.credit}', but {without} of {len(trajectories)} trajectories have no shaped_rewards"
        raise ConfigError(
            [f"finetuning.reward_function.credit: {found}, so it would have no effect on them"],
            hint="use a trajectory builder that gives them, as the built-in ones do, or `credit: outcome`",
        )


def check_rewards(collected: TrajectoryCollection) -> None:
    """Raise InvalidTrajectories if a plug-in's builder gave a reward that is no finite number."""
    every = [trajectory for group in collected.trajectories for trajectory in group]
    if bad := [problem for trajectory in every if (problem := _reward_problem(trajectory))]:
        raise InvalidTrajectories(
            f"{len(bad)} of {len(every)} trajectories have a reward that cannot be trained on; of the first, {bad[0]}",
            hint="let `finalize` of the trajectory builder leave out rollouts that have no reward",
        )


def _reward_problem(trajectory: Trajectory) -> str | None:
    shaped = (score_problem(value, "a shaped reward") for value in trajectory.shaped_rewards or ())
    return score_problem(trajectory.reward, "the reward") or next(filter(None, shaped), None)


def check_trajectories(
    tally: RolloutTally,
    *,
    target_functions: Sequence[str],
    target_model: str | None,
    broken_by: Explain = lambda: None,
) -> None:
    """Raise `NoTrajectories` if no rollout of the epoch can be trained on.

    If most of them were left out because of their sampling, raise `UntrainableSampling`.
    """
    if tally.num_usable > 0:
        return
    if tally.num_rollouts == 0:
        raise NoTrajectories("no trajectory to train on: no rollout was started", hint="The dataset has no rows.")
    if tally.failures[0].cause == LeftOutCause.UNTRAINABLE_SAMPLING:
        raise _untrainable(tally)
    lines = [f"no trajectory to train on; {tally.num_rollouts} rollouts were left out:"]
    lines += [f"  {each}" for each in tally.failures]
    lines += [f"  {count} x {cause}" for cause, count in tally.causes.most_common() if cause.by_choice]
    if LeftOutCause.NO_TARGET_FUNCTION in tally.causes:
        lines.append(
            f"  target_functions: {', '.join(target_functions)}; LLM calls came from: {_names(tally.functions)}"
        )
    if LeftOutCause.NO_TARGET_MODEL in tally.causes:
        suggestion = did_you_mean(str(target_model), tally.models)
        lines.append(f"  target_model: {target_model}; LLM calls went to: {_names(tally.models)}.{suggestion}")
    message, hint = with_explanation("\n".join(lines), remedy_of_left_out(tally, tally.failures), broken_by())
    raise NoTrajectories(message, hint=hint)


def _untrainable(tally: RolloutTally) -> UntrainableSampling:
    left_out = tally.causes[LeftOutCause.UNTRAINABLE_SAMPLING]
    seen = f"{left_out} of {tally.num_rollouts} rollouts have no other answers; calls by function:"
    lines = [f"the agent never samples from the trained distribution: {seen}"]
    lines += [f"  {count:6d} x {function}: {how}" for (function, how), count in tally.untrainable.most_common()]
    return UntrainableSampling("\n".join(lines), hint=remedy(how for _, how in tally.untrainable))


def check_failures(tally: RolloutTally, *, max_failure_rate: float, broken_by: Explain = lambda: None) -> None:
    """Raise `TooManyFailures` if more than the allowed share of the rollouts failed or got no score."""
    if tally.num_failed <= max_failure_rate * tally.num_rollouts:
        return
    failures = [each for each in tally.failures if LeftOutCause(each.cause).failure]
    share = tally.num_failed / tally.num_rollouts
    message, hint = with_explanation(
        f"{tally.num_failed} of {tally.num_rollouts} rollouts failed ({share:.0%}; finetuning.max_failure_rate allows "
        f"{max_failure_rate:.0%}): {'; '.join(map(str, failures))}",
        remedy_of_left_out(tally, failures),
        broken_by(),
    )
    raise TooManyFailures(message, hint=hint)


def check_signal(epochs: Sequence[EpochRecord], config: GuardsConfig, compares: Compares = "group") -> None:
    """Raise `NoLearningSignal` if the last epochs had nothing to compare."""
    recent = epochs[-config.epochs_without_signal :]
    if len(recent) < config.epochs_without_signal or not all(_without_signal(e, compares) for e in recent):
        return
    # A run that has learned before explains nothing as a whole.
    causes, of_recent = (_causes(each, config, compares) for each in (epochs, recent))
    likely = (causes or of_recent)[:2]
    if likely and likely[0].cause == too_hard.name and _may_be_luck(epochs, config, compares):
        return
    seen = ", ".join(f"{e.groups_without_difference} of {e.num_groups}" for e in recent)
    low, high = min(e.min_reward for e in recent), max(e.max_reward for e in recent)
    trained = ", ".join(f"{e.trained_groups} of {e.filtered_groups} submitted" for e in recent)
    message, hint = with_explanation(
        f"nothing to learn from in {_span(recent)}: groups whose rewards are all equal: {seen}; "
        + (f"groups trained: {trained}; " if any(e.filtered_groups for e in recent) else "none was submitted; ")
        + f"rewards from {low:g} to {high:g}",
        " Or: ".join(map(str, likely)) or "Raise num_generations, or use a more varied model.",
        explanation_of_fall(epochs, config) if not causes or causes[0].cause == rate_too_high.name else None,
    )
    raise NoLearningSignal(message, hint=hint)


def _may_be_luck(epochs: Sequence[EpochRecord], config: GuardsConfig, compares: Compares) -> bool:
    """True if a model that succeeds once in a while may have had no luck; a number that the user set is final."""
    if "epochs_without_signal" in config.model_fields_set:
        return False
    without = list(takewhile(lambda epoch: _without_signal(epoch, compares), reversed(epochs)))
    return len(without) < _MOST_WITHOUT and sum(epoch.num_trajectories for epoch in without) < ENOUGH_TO_TELL


def _causes(epochs: Sequence[EpochRecord], config: GuardsConfig, compares: Compares) -> Sequence[Finding]:
    return diagnosis_of(Window(epochs, facts=Facts(compares=compares), guards=config), ended=False).findings


def check_reward(epochs: Sequence[EpochRecord], config: GuardsConfig) -> None:
    """Raise `RewardCollapse` if the mean reward fell far below that of the first epochs, by more than chance.

    The height of a mean is measured from the worst reward seen, so that rewards from -1 to 1 are judged like
    those from 0 to 1. Chance: for rewards between the worst a and the best b, the variance of a reward with
    mean m is at most (m - a)(b - m) (Bhatia-Davis); a group of rollouts counts as one sample.
    """
    count = config.collapse_epochs
    if config.collapse_share == 0 or len(epochs) < 2 * count or any(epoch.relative for epoch in epochs):
        return
    first, recent = epochs[:count], epochs[-count:]
    worst, best = min(e.min_reward for e in epochs), max(e.max_reward for e in epochs)
    start, now = _mean_reward(first), _mean_reward(recent)
    error = sqrt(_variance(first, worst, best) + _variance(recent, worst, best))
    if now - worst >= config.collapse_share * (start - worst) or start - now <= _STANDARD_ERRORS * error:
        return
    message, hint = with_explanation(
        f"the mean reward fell from {start:.3f} in {_span(first)} to {now:.3f} in {_span(recent)} "
        f"(worst reward seen: {worst:g}; standard error of the fall: {error:.3f})",
        "The backend does not report how far its updates went. Most often the learning rate is too high: try a third, "
        "or set beta, the weight of the KL divergence to the starting model. An earlier checkpoint has a better model.",
        explanation_of(epochs, config),
    )
    raise RewardCollapse(message, hint=hint)


def check_job(status: TrainingJobStatus, *, broken_by: Explain = lambda: None) -> None:
    """Raise `TrainingFailed` if the job ended without new weights."""
    if status.status not in (TrainingStatusEnum.FAILED, TrainingStatusEnum.CANCELED):
        return
    reason = status.message or "the backend gave no reason"
    message, hint = with_explanation(
        f"training job {status.run_id} on {status.backend} {status.status.value}: {reason}",
        "The backend's log may have details.",
        broken_by(),
    )
    raise TrainingFailed(message, hint=f"{hint} The weights are those of the last completed epoch.")


def check_trained(statuses: Sequence[TrainingJobStatus]) -> None:
    """Raise `NoLearningSignal` if every job reports that it trained no group."""
    trained = [reported_metrics(status).get("trained_groups") for status in statuses]
    if statuses and all(count == 0 for count in trained):
        raise NoLearningSignal(
            f"the backend trained none of the groups that it was given in {len(statuses)} jobs", hint=untrained.remedy
        )


def _without_signal(epoch: EpochRecord, compares: Compares) -> bool:
    return share_of_equal(epoch, compares) == 1 or epoch.trained_groups == 0


def remedy_of_left_out(tally: RolloutTally, failures: Sequence[FailureCount]) -> str:
    """The remedy for the first, most frequent, of `failures`."""
    cause = LeftOutCause(failures[0].cause)
    if cause.failure:
        return remedy_of(cause, failures[0].error)
    if cause in (LeftOutCause.NO_TARGET_FUNCTION, LeftOutCause.NO_TARGET_MODEL):
        return (wrong_target if tally.functions else calls_lost).remedy
    known = {LeftOutCause.NO_LOGPROBS: calls_lost, LeftOutCause.TOO_STALE: stale_rollouts}
    if cause in known:
        return known[cause].remedy
    return "See the run's trajectories/ folder: each line says why its rollout was left out."


def _names(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count} calls)" for name, count in counts.most_common()) or "nowhere"


def _span(epochs: Sequence[EpochRecord]) -> str:
    return epochs_text(epochs[0].epoch, epochs[-1].epoch - epochs[0].epoch + 1)


def _mean_reward(epochs: Sequence[EpochRecord]) -> float:
    return sum(e.avg_reward for e in epochs) / len(epochs)


def _variance(epochs: Sequence[EpochRecord], worst: float, best: float) -> float:
    """Largest possible variance of the mean reward over these epochs' groups."""
    mean = _mean_reward(epochs)
    return (mean - worst) * (best - mean) / max(1, sum(e.num_groups for e in epochs))
