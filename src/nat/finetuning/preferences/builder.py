"""The builder of preference pairs: one pass over the dataset, and all pairs of its candidates."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.finetuning import FinetuneConfig, RewardFunctionConfig, TrajectoryCollection
from nat.data_models.score import score_problem
from nat.errors import NoPreferencePairs, did_you_mean
from nat.eval.failures import remedy_of
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder, abandoned_on_error
from nat.finetuning.preferences.candidates import Candidates, CandidateStep, find_candidates
from nat.finetuning.preferences.config import DPOTrajectoryBuilderConfig
from nat.finetuning.preferences.pairs import PreferencePair, pair_example, turns_of
from nat.finetuning.preferences.trajectories import trajectory_of
from nat.finetuning.progress import append_progress
from nat.finetuning.run_context import current_run
from nat.finetuning.trajectories import outcome
from nat.finetuning.trajectories.groups import group_by_example
from nat.preferences.skips import OF_A_JOB, PUSH, SkipCause, SkipCount, counted
from nat.registry.decorators import from_config, register_trajectory_builder
from nat.runs.rollouts import LeftOutCause, RolloutRecord, RolloutTally, tally

__all__ = ["CandidateStep", "DPOTrajectoryBuilder", "PreferencePair"]

logger = logging.getLogger(__name__)

PROGRESS_FILE = "dpo_trajectory_builder"


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


class DPOTrajectoryBuilder(TrajectoryBuilder):
    """One trajectory per pair, grouped by example.

    It needs no evaluator; with a reward function, the records of the rollouts have its scores.
    """

    trajectory_builder_config: DPOTrajectoryBuilderConfig
    passes_per_epoch = 1

    def __init__(self, trajectory_builder_config: DPOTrajectoryBuilderConfig) -> None:
        super().__init__(trajectory_builder_config)
        self.evaluation_runs: dict[str, asyncio.Task[EvaluationRunOutput]] = {}
        self._collected: dict[str, Collected] = {}

    async def start_run(self, run_id: str, meta: dict[str, Any] | None = None) -> None:
        """Launch one pass over the dataset.

        Raises:
            ValueError: a pass under this id is going on.

        """
        if run_id in self.evaluation_runs:
            raise ValueError(f"Run {run_id} is already in progress.")
        logger.info("Starting an evaluation run for run_id: %s", run_id)
        self.evaluation_runs[run_id] = asyncio.create_task(self.run_eval(), name=f"{run_id} candidates")

    async def finalize(self, run_id: str, meta: dict[str, Any] | None = None) -> TrajectoryCollection:
        """Wait for the pass and pair its candidates.

        Raises:
            ValueError: no pass was started under this id.
            NoPreferencePairs: there is no pair; the message counts the causes.

        """
        if run_id not in self.evaluation_runs:
            raise ValueError(f"No evaluation run found for run_id: {run_id}")
        config, run = self.trajectory_builder_config, current_run()
        async with abandoned_on_error(self, run_id):
            output = await self.evaluation_runs[run_id]
        del self.evaluation_runs[run_id]
        run_config = self.run_config or FinetuneConfig()  # a unit test may leave `initialize` out
        collected = _collect(output, config, run_config.target_functions, run_config.reward_function)
        self._collected[run_id] = collected
        if run is not None:
            self.log_progress(run_id, _metrics_of(collected, config), str(run.journal.run_dir))
        if not collected.pairs:
            raise _no_pairs(collected, config)
        for each in _reported_skips(collected, config):
            if each.cause.suspicious:
                logger.warning("Preference pairs: %s. %s", each, each.cause.remedy)
            else:
                logger.info("Preference pairs: %s", each)
        if (counts := tally(collected.records)).num_failed:
            logger.warning("Preference pairs: %s", _failed_rollouts(counts))
        facts = {"run_id": run_id} | {key: value for key, value in (meta or {}).items() if key == "epoch"}
        by_diff = config.reward_from_score_diff
        groups = group_by_example(
            trajectory_of(pair, reward_from_score_diff=by_diff, facts=facts) for pair in collected.pairs
        )
        text = "Built %d preference pairs from %d candidates in %d turns of %d examples for run_id: %s"
        sizes = len(collected.pairs), len(collected.found.candidates), collected.num_turns, len(groups)
        logger.info(text, *sizes, run_id)
        return TrajectoryCollection(trajectories=groups, run_id=run_id)

    async def abandon(self, run_id: str) -> None:
        """Cancel the pass if it is still running, and forget it."""
        task = self.evaluation_runs.pop(run_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def rollouts(self, run_id: str) -> Sequence[RolloutRecord]:
        return self._collected[run_id].records if run_id in self._collected else ()

    def metrics(self, run_id: str) -> dict[str, int]:
        """Counts of the last `finalize`: what was found, what was skipped for which cause; empty before it."""
        known = self._collected.get(run_id)
        return {} if known is None else _metrics_of(known, self.trajectory_builder_config)

    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append a line to `dpo_trajectory_builder_<run_id>.jsonl`."""
        facts = {"config": self.trajectory_builder_config.model_dump(exclude={"type", "reward"}), **metrics}
        append_progress(PROGRESS_FILE, run_id, facts, output_dir=output_dir)


def _collect(
    output: EvaluationRunOutput,
    config: DPOTrajectoryBuilderConfig,
    functions: Sequence[str],
    reward: RewardFunctionConfig | None,
) -> Collected:
    """The pairs of a pass. Pure.

    The candidates of a rollout that failed are not used: it may have ended before a turn was complete.
    """
    known = outcome.facts_of(output, reward)
    result = output.results_of(reward.name) if reward is not None else None
    scores = {str(score.id): score.score for score in result.eval_output_items} if result is not None else {}
    records: list[RolloutRecord] = []
    whole, pairs, num_turns = Candidates(), list[PreferencePair](), 0
    for item in output.eval_input.eval_input_items:
        facts = known[str(item.id)]
        if "left_out" in facts:
            records.append(outcome.recorded(item, 0, **facts))
            continue
        found = find_candidates(str(item.id), item.trajectory, config.ttc_step_name, functions)
        turns = turns_of(found.candidates)
        own, unpaired = pair_example(turns, config)
        found.skipped += unpaired
        score: Any = scores.get(str(item.id))
        facts |= {} if score_problem(score) else {"reward": float(score)}
        if not own:
            causes = counted(found.skipped)
            facts |= {"left_out": LeftOutCause.NO_PAIR, "error": str(causes[0]) if causes else None}
        records.append(outcome.recorded(item, 0, **facts))
        pairs += own
        num_turns += len(turns)
        whole.candidates += found.candidates
        whole.skipped += found.skipped
        whole.stripped += found.stripped
        whole.other_names += found.other_names
    return Collected(records, pairs, num_turns, whole)


def _reported_skips(collected: Collected, config: DPOTrajectoryBuilderConfig) -> list[SkipCount]:
    """The counts, except of single candidates that are meant."""
    meant = set() if config.require_multiple_candidates else {SkipCause.SINGLE_CANDIDATE}
    return [each for each in collected.skips if each.cause not in meant]


def _metrics_of(collected: Collected, config: DPOTrajectoryBuilderConfig) -> dict[str, int]:
    """What was found, and what was skipped for each cause, 0 included."""
    skipped = {each.cause: each.count for each in _reported_skips(collected, config)}
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


def _no_pairs(collected: Collected, config: DPOTrajectoryBuilderConfig) -> NoPreferencePairs:
    """The error of a pass without pairs: what was seen, counted by cause, and a remedy for the likeliest."""
    counts = tally(collected.records)
    played = counts.num_rollouts - counts.num_failed
    seen = f"{len(collected.found.candidates)} candidates in {collected.num_turns} turns of {played} rollouts"
    lines = [f"no preference pair to train on: {seen}"]
    lines += [f"  {each}" for each in collected.skips]
    if counts.num_failed:
        lines.append(f"  {_failed_rollouts(counts)}")
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


def _failed_rollouts(counts: RolloutTally) -> str:
    """How many rollouts failed, by cause."""
    causes = [str(each) for each in counts.failures if LeftOutCause(each.cause).failure]
    return f"{counts.num_failed} of {counts.num_rollouts} rollouts failed: {'; '.join(causes)}"


register_trajectory_builder(config_type=DPOTrajectoryBuilderConfig)(from_config(DPOTrajectoryBuilder))
