"""What one pass over the dataset gives: pairs, counts of what was skipped, and the texts about it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.finetuning import RewardFunctionConfig
from nat.data_models.score import score_problem
from nat.errors import NoPreferencePairs, did_you_mean
from nat.eval.failures import remedy_of
from nat.finetuning.preferences.candidates import Candidates, find_candidates
from nat.finetuning.preferences.config import DPOTrajectoryBuilderConfig
from nat.finetuning.preferences.pairs import PreferencePair, pair_example, turns_of
from nat.finetuning.trajectories import outcome
from nat.preferences.skips import OF_A_JOB, PUSH, SkipCause, SkipCount, Skipped, counted
from nat.runs.rollouts import LeftOutCause, RolloutRecord, RolloutTally, tally


@dataclass(frozen=True)
class Collected:
    """The pairs of one pass, and what became of everything else."""

    records: list[RolloutRecord]
    """One for each rollout."""
    pairs: list[PreferencePair]
    num_turns: int
    found: Candidates
    """Of all rollouts; its skips have those of turns and pairs, too."""

    @property
    def skips(self) -> list[SkipCount]:
        """By cause, the most frequent first."""
        return counted(self.found.skipped)


def collect(
    output: EvaluationRunOutput,
    config: DPOTrajectoryBuilderConfig,
    functions: Sequence[str],
    reward: RewardFunctionConfig | None,
) -> Collected:
    """The pairs of a pass. Pure.

    The candidates of a rollout that failed are not used: it may have ended before a turn was complete.
    """
    failures = {failure.item_id: failure for failure in output.failures}
    result = output.results_of(reward.name) if reward is not None else None
    scores = {str(score.id): score.score for score in result.eval_output_items} if result is not None else {}
    records: list[RolloutRecord] = []
    whole, pairs, num_turns = Candidates(), list[PreferencePair](), 0
    for item in output.eval_input.eval_input_items:
        if (failure := failures.get(str(item.id))) is not None:
            records.append(outcome.failed(item, failure, 0))
            continue
        found = find_candidates(str(item.id), item.trajectory, config.ttc_step_name, functions)
        turns = turns_of(found.candidates)
        own, unpaired = pair_example(turns, config)
        found.skipped += unpaired
        records.append(_record(item, scores.get(str(item.id)), own, found.skipped))
        pairs += own
        num_turns += len(turns)
        whole.candidates += found.candidates
        whole.skipped += found.skipped
        whole.stripped += found.stripped
        whole.other_names += found.other_names
    return Collected(
        outcome.with_facts(records, output, None if reward is None else reward.name), pairs, num_turns, whole
    )


def _record(
    item: EvalInputItem, score: Any, pairs: Sequence[PreferencePair], skipped: Sequence[Skipped]
) -> RolloutRecord:
    """The record of a rollout that did not fail, with the evaluator's score if it has one."""
    facts: dict[str, Any] = {} if score_problem(score) else {"reward": float(score)}
    causes = counted(skipped)
    if not pairs:
        facts |= {"left_out": LeftOutCause.NO_PAIR, "error": str(causes[0]) if causes else None}
    return outcome.recorded(item, 0, **facts)


def reported_skips(collected: Collected, config: DPOTrajectoryBuilderConfig) -> list[SkipCount]:
    """The counts, except of single candidates that are meant."""
    meant = set() if config.require_multiple_candidates else {SkipCause.SINGLE_CANDIDATE}
    return [each for each in collected.skips if each.cause not in meant]


def metrics_of(collected: Collected, config: DPOTrajectoryBuilderConfig) -> dict[str, int]:
    """What was found, and what was skipped for each cause, 0 included."""
    skipped = {each.cause: each.count for each in reported_skips(collected, config)}
    return {
        "total_examples": len({record.example_id for record in collected.records}),
        "total_turns": collected.num_turns,
        "total_candidates": len(collected.found.candidates),
        "total_pairs": len(collected.pairs),
        "total_trajectories": len(collected.pairs),
        "failed_rollouts": tally(collected.records).num_failed,
        "answers_removed_from_prompts": collected.found.stripped,
        **{f"skipped_{cause.name.lower()}": skipped.get(cause, 0) for cause in SkipCause if cause not in OF_A_JOB},
    }


def no_pairs(collected: Collected, config: DPOTrajectoryBuilderConfig) -> NoPreferencePairs:
    """The error of a pass without pairs: what was seen, counted by cause, and a remedy for the likeliest."""
    counts = tally(collected.records)
    played = counts.num_rollouts - counts.num_failed
    seen = f"{len(collected.found.candidates)} candidates in {collected.num_turns} turns of {played} rollouts"
    lines = [f"no preference pair to train on: {seen}"]
    lines += [f"  {each}" for each in collected.skips]
    if counts.num_failed:
        lines.append(f"  {failed_rollouts(counts)}")
    if counts.num_rollouts == 0:
        hint = "The dataset has no rows."
    elif played == 0:
        hint = remedy_of(counts.failures[0].cause)
    elif collected.skips:
        hint = collected.skips[0].cause.remedy
    else:
        name, others = config.ttc_step_name, collected.found.other_names
        known = ", ".join(f"{other} ({count})" for other, count in others.most_common()) or "none"
        lines.append(f"  no step is named '{name}' (ttc_step_name); TTC_END steps seen: {known}")
        hint = f"Set ttc_step_name to the name of your candidates.{did_you_mean(name, others)}"
        if not others:
            hint = f"Push each candidate as IntermediateStepPayload(event_type=TTC_END, name='{name}', {PUSH})."
    return NoPreferencePairs("\n".join(lines), hint=hint)


def failed_rollouts(counts: RolloutTally) -> str:
    """How many rollouts failed, by cause."""
    causes = [str(each) for each in counts.failures if LeftOutCause(each.cause).failure]
    return f"{counts.num_failed} of {counts.num_rollouts} rollouts failed: {'; '.join(causes)}"
