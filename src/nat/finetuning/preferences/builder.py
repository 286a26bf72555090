"""The builder of preference pairs: one pass over the dataset, and all pairs of its candidates."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.finetuning import TrajectoryCollection
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder, abandoned_on_error
from nat.finetuning.preferences.candidates import CandidateStep
from nat.finetuning.preferences.collection import (
    Collected,
    collect,
    failed_rollouts,
    metrics_of,
    no_pairs,
    reported_skips,
)
from nat.finetuning.preferences.config import DPOTrajectoryBuilderConfig
from nat.finetuning.preferences.pairs import PreferencePair
from nat.finetuning.preferences.trajectories import trajectory_of
from nat.finetuning.progress import append_progress
from nat.finetuning.run_context import current_run
from nat.finetuning.trajectories.groups import group_by_example
from nat.registry.decorators import from_config, register_trajectory_builder
from nat.runs.rollouts import RolloutRecord, tally

__all__ = ["CandidateStep", "DPOTrajectoryBuilder", "PreferencePair"]

logger = logging.getLogger(__name__)

PROGRESS_FILE = "dpo_trajectory_builder"


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
        run_config = self.run_config
        collected = collect(output, config, run_config.target_functions, run_config.reward_function)
        self._collected[run_id] = collected
        if run is not None:
            self.log_progress(run_id, metrics_of(collected, config), str(run.journal.run_dir))
        if not collected.pairs:
            raise no_pairs(collected, config)
        self._explain(collected)
        facts = {"run_id": run_id} | {key: value for key, value in (meta or {}).items() if key == "epoch"}
        by_diff = config.reward_from_score_diff
        groups = group_by_example(
            trajectory_of(pair, reward_from_score_diff=by_diff, facts=facts) for pair in collected.pairs
        )
        text = "Built %d preference pairs from %d candidates in %d turns of %d examples for run_id: %s"
        counts = len(collected.pairs), len(collected.found.candidates), collected.num_turns, len(groups)
        logger.info(text, *counts, run_id)
        return TrajectoryCollection(trajectories=groups, run_id=run_id)

    def _explain(self, collected: Collected) -> None:
        """Log a line for each cause of a skip, and one for failed rollouts."""
        for each in reported_skips(collected, self.trajectory_builder_config):
            if each.cause.suspicious:
                logger.warning("Preference pairs: %s. %s", each, each.cause.remedy)
            else:
                logger.info("Preference pairs: %s", each)
        if (counts := tally(collected.records)).num_failed:
            logger.warning("Preference pairs: %s", failed_rollouts(counts))

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
        return {} if known is None else metrics_of(known, self.trajectory_builder_config)

    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append a line to `dpo_trajectory_builder_<run_id>.jsonl`."""
        facts = {"config": self.trajectory_builder_config.model_dump(exclude={"type", "reward"}), **metrics}
        append_progress(PROGRESS_FILE, run_id, facts, output_dir=output_dir)


register_trajectory_builder(config_type=DPOTrajectoryBuilderConfig)(from_config(DPOTrajectoryBuilder))
