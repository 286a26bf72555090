"""Checks that end a run which cannot learn, each with its numbers and a remedy.

Pure: the trainer calls them in each epoch and lets them raise. Warnings are in `nat.finetuning.diagnosis.catalogue`.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

from nat.data_models.finetuning import (
    GuardsConfig,
    RewardFunctionConfig,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryCollection,
)
from nat.data_models.rollout_failure import FAILURES, FailureCount
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
from nat.finetuning.change import change
from nat.finetuning.diagnosis.catalogue import diagnosis_of, explanation_of
from nat.finetuning.diagnosis.conditions import calls_lost, rate_too_high, too_hard, untrained, wrong_target
from nat.finetuning.diagnosis.window import Window, share_of_equal
from nat.finetuning.epoch import reported_metrics
from nat.finetuning.sampling import remedy
from nat.runs.records import EpochRecord, ValidationRecord, epochs_text, played_epochs, score_range
from nat.runs.rollouts import LeftOutCause, RolloutTally
from nat.wire.rewards import equal
from nat.wire.training import Compares

_MOST_WITHOUT, _ENOUGH_TO_TELL = 10, 600
"""Epochs, and rollouts, without a success after which a run ends: so many rollouts miss a success in 200 with a
probability of 5 %."""
_USUAL_TOP = 1.0
"""The highest score of most evaluators; none says what its own is."""


def check_credit(reward: RewardFunctionConfig | None, collected: TrajectoryCollection) -> None:
    """Raise ConfigError if single answers are to be credited, and a trajectory has no shaped rewards.

    Only its trajectories show whether a builder gives them.
    """
    every = [trajectory for group in collected.trajectories for trajectory in group]
    without = sum(trajectory.shaped_rewards is None for trajectory in every)
    if reward is not None and reward.credit != "outcome" and without:
        found = f"'{reward.credit}', but {without} of {len(every)} trajectories have no shaped_rewards"
        raise ConfigError(
            [f"finetuning.reward_function.credit: {found}, so it would have no effect on them"],
            hint="use a trajectory builder that gives them, as the built-in ones do, or `credit: outcome`",
        )


def check_rewards(collected: TrajectoryCollection) -> None:
    """Raise InvalidTrajectories if a plug-in's builder gave a reward that is no finite number."""
    every = [trajectory for group in collected.trajectories for trajectory in group]
    problems = (
        score_problem(each.reward, "the reward")
        or next(filter(None, (score_problem(own, "a shaped reward") for own in each.shaped_rewards or ())), None)
        for each in every
    )
    if bad := [*filter(None, problems)]:
        raise InvalidTrajectories(
            f"{len(bad)} of {len(every)} trajectories have a reward that cannot be trained on; of the first, {bad[0]}",
            hint="let `finalize` of the trajectory builder leave out rollouts that have no reward",
        )


def check_trajectories(tally: RolloutTally, *, target_functions: Sequence[str], target_model: str | None) -> None:
    """Raise `NoTrajectories` if no rollout of the epoch can be trained on.

    If most of them were left out because of their sampling, raise `UntrainableSampling`.
    """
    if tally.num_usable > 0:
        return
    if tally.num_rollouts == 0:
        raise NoTrajectories("no trajectory to train on: no rollout was started", hint="The dataset has no rows.")
    if tally.failures[0].cause == LeftOutCause.UNTRAINABLE_SAMPLING:
        seen = f"{tally.failures[0].count} of {tally.num_rollouts} rollouts have no other answers; calls by function:"
        lines = [f"the agent never samples from the trained distribution: {seen}"]
        lines += [f"  {count:6d} x {function}: {how}" for (function, how), count in tally.untrainable.most_common()]
        raise UntrainableSampling("\n".join(lines), hint=remedy(how for _, how in tally.untrainable))
    lines = [f"no trajectory to train on; {tally.num_rollouts} rollouts were left out:"]
    lines += [f"  {each}" for each in tally.failures]
    lines += [f"  {count} x {cause}" for cause, count in tally.causes.most_common() if cause.by_choice]
    if LeftOutCause.NO_TARGET_FUNCTION in tally.causes:
        named = ", ".join(target_functions)
        lines.append(f"  target_functions: {named}; LLM calls came from: {_names(tally.functions)}")
    if LeftOutCause.NO_TARGET_MODEL in tally.causes:
        suggestion = did_you_mean(str(target_model), tally.models)
        lines.append(f"  target_model: {target_model}; LLM calls went to: {_names(tally.models)}.{suggestion}")
    raise NoTrajectories("\n".join(lines), hint=_remedy_of(tally, tally.failures))


def check_failures(tally: RolloutTally, *, max_failure_rate: float) -> None:
    """Raise `TooManyFailures` if more than the allowed share of the rollouts failed or got no score."""
    if tally.num_failed <= max_failure_rate * tally.num_rollouts:
        return
    failures = [each for each in tally.failures if each.cause in FAILURES]
    seen = f"{tally.num_failed} of {tally.num_rollouts} rollouts failed ({tally.num_failed / tally.num_rollouts:.0%}"
    allowed = f"finetuning.max_failure_rate allows {max_failure_rate:.0%}): {'; '.join(map(str, failures))}"
    raise TooManyFailures(f"{seen}; {allowed}", hint=_remedy_of(tally, failures))


def check_signal(epochs: Sequence[EpochRecord], config: GuardsConfig, compares: Compares = "group") -> None:
    """Raise `NoLearningSignal` if the last epochs had nothing to compare."""
    recent = epochs[-config.epochs_without_signal :]
    without = list(takewhile(lambda epoch: _without_signal(epoch, compares), reversed(epochs)))
    if len(without) < config.epochs_without_signal:
        return
    # A run that has learned before explains nothing as a whole.
    causes, of_recent = (
        diagnosis_of(Window(each, guards=config, compares=compares, ended=False)).findings for each in (epochs, recent)
    )
    likely = (causes or of_recent)[:2]
    few = len(without) < _MOST_WITHOUT and sum(epoch.num_trajectories for epoch in without) < _ENOUGH_TO_TELL
    hard = bool(likely) and likely[0].cause == too_hard.name
    if hard and few and "epochs_without_signal" not in config.model_fields_set:
        return  # a model that succeeds once in a while may have had no luck; a number that the user set is final
    seen = ", ".join(f"{e.groups_without_difference} of {e.num_groups}" for e in recent)
    trained = ", ".join(f"{e.trained_groups} of {e.filtered_groups} submitted" for e in recent)
    submitted = f"groups trained: {trained}" if any(e.filtered_groups for e in recent) else "none was submitted"
    rewards = f"rewards from {min(e.min_reward for e in recent):g} to {max(e.max_reward for e in recent):g}"
    raise NoLearningSignal(
        f"nothing to learn from in {_span(recent)}: groups whose rewards are all equal: {seen}; {submitted}; {rewards}",
        hint=" Or: ".join(map(str, likely)) or "Raise num_generations, or use a more varied model.",
    )


def check_reward(epochs: Sequence[EpochRecord], config: GuardsConfig) -> None:
    """Raise `RewardCollapse` if the mean reward fell far below that of the first epochs, by more than chance.

    The height of a mean is measured from the worst reward seen, so that rewards from -1 to 1 are judged like those from
    0 to 1. A failed rollout counts as the worst: where training makes the agent fail, the others prove nothing.
    """
    count = config.collapse_epochs
    if config.collapse_share == 0 or len(epochs) < 2 * count or any(epoch.relative for epoch in epochs):
        return
    worst, _ = score_range(reward for e in epochs for reward in (e.min_reward, e.max_reward))
    first, recent = ([_counting_failures(e, worst) for e in part] for part in (epochs[:count], epochs[-count:]))
    fall, failed = change(first, recent), sum(e.num_failed for e in recent)
    if not fall.collapsed(worst, config.collapse_share):
        return
    errors = [str(each) for e in recent for each in e.failures if each.cause in FAILURES]
    counted = f"; {failed} failed rollouts count as it: {errors[-1]}" if errors else ""
    raise RewardCollapse(
        f"the mean reward fell from {fall.before:.3f} in {_span(first)} to {fall.after:.3f} in {_span(recent)} "
        f"(worst reward seen: {worst:g}{counted}; standard error of the fall: {fall.error:.3f})",
        hint="Most often the learning rate is too high: try a third, or set beta, the weight of the KL divergence "
        "to the starting model. If no update was large (train/approx_kl), compare answers before and after, and check "
        "the evaluator. An earlier checkpoint has a better model.",
    )


def _counting_failures(epoch: EpochRecord, score: float) -> EpochRecord:
    """The epoch as if its failed rollouts had this score; its variances are not known then."""
    if not epoch.num_failed:
        return epoch
    count = epoch.num_trajectories + epoch.num_failed
    average = (epoch.avg_reward * epoch.num_trajectories + score * epoch.num_failed) / count
    changes = {"avg_reward": average, "min_reward": score, "num_trajectories": count, "metrics": {}}
    return epoch.model_copy(update=changes)


def check_job(status: TrainingJobStatus) -> None:
    """Raise `TrainingFailed` if the job ended without new weights."""
    if status.status not in (TrainingStatusEnum.FAILED, TrainingStatusEnum.CANCELED):
        return
    reason = status.message or "the backend gave no reason"
    raise TrainingFailed(
        f"training job {status.run_id} on {status.backend} {status.status.value}: {reason}",
        hint="The backend's log may have details. The weights are those of the last completed epoch.",
    )


def explain(error: BaseException, epochs: Sequence[EpochRecord], config: GuardsConfig) -> None:
    """Add what changed since the best epoch to an error that a broken model may have caused; its remedy takes over.

    A fall of the reward can come from any change; jobs and rollouts fail by a model that one update has broken.
    """
    if not isinstance(error, NoTrajectories | TooManyFailures | TrainingFailed | NoLearningSignal | RewardCollapse):
        return
    found = explanation_of(epochs, config)
    if isinstance(error, NoLearningSignal):
        explained = Window(epochs, guards=config).fallen
    else:
        explained = isinstance(error, RewardCollapse) or (found is not None and found.cause == rate_too_high.name)
    if found is not None and explained:
        error.message, error.hint = f"{error.message}\n  {found.sentence}", found.remedy


def check_trained(statuses: Sequence[TrainingJobStatus]) -> None:
    """Raise `NoLearningSignal` if every job reports that it trained no group."""
    trained = [reported_metrics(status).get("trained_groups") for status in statuses]
    if statuses and all(count == 0 for count in trained):
        raise NoLearningSignal(
            f"the backend trained none of the groups that it was given in {len(statuses)} jobs", hint=untrained.remedy
        )


def _without_signal(epoch: EpochRecord, compares: Compares) -> bool:
    return share_of_equal(epoch, compares) == 1 or epoch.trained_groups == 0


def _remedy_of(tally: RolloutTally, failures: Sequence[FailureCount]) -> str:
    """The remedy for the first, most frequent, of `failures`."""
    cause = LeftOutCause(failures[0].cause)
    of_target = (wrong_target if tally.functions else calls_lost).remedy
    remedies = {
        LeftOutCause.NO_TARGET_FUNCTION: of_target,
        LeftOutCause.NO_TARGET_MODEL: of_target,
        LeftOutCause.NO_LOGPROBS: calls_lost.remedy,
        LeftOutCause.TOO_STALE: "Let the server name its weights in each answer (system_fingerprint must be the job's "
        "policy_version), or set finetuning.max_staleness to 0.",
    }
    other = "See the run's trajectories/ folder: each line says why its rollout was left out."
    return remedy_of(cause) if cause.failure else remedies.get(cause, other)


def _names(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count} calls)" for name, count in counts.most_common()) or "nowhere"


def _span(epochs: Sequence[EpochRecord]) -> str:
    return epochs_text(epochs[0].epoch, epochs[-1].epoch - epochs[0].epoch + 1)


def solved(epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord], *, last: int) -> str | None:
    """Why the `last` epochs of the run leave nothing to learn, if that is a success; None if it is not.

    All their rewards must be the highest that the run has seen, lower ones must have been seen before, and something
    must have been trained: an evaluator that always gives the same score has taught nothing.
    """
    recent, played = epochs[-last:], played_epochs(epochs)
    trained = any(epoch.trained_groups for epoch in epochs)
    if len(recent) < last or not trained or any(e.relative or not e.played for e in recent):
        return None
    rewards = [reward for validation in validations for reward in validation.rewards]
    low = min([*(e.min_reward for e in played), *rewards])
    top = max([*(e.max_reward for e in played), *rewards])
    if equal([low, top]) or not equal([top, *(e.min_reward for e in recent)]):
        return None
    seen = f"every training rollout of {epochs_text(recent[0].epoch, last)} has the highest reward of the run, {top:g}"
    if equal([top, _USUAL_TOP]):
        return f"Solved: {seen} (the lowest was {low:g}), so nothing is left to learn from these examples."
    return (
        f"Nothing is left to compare: {seen} (the lowest was {low:g}). If the evaluator can give more than {top:g}, "
        "the model has stopped exploring: raise num_generations, or use harder examples."
    )
