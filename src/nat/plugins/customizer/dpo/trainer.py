"""The trainer of preference pairs: an epoch trainer with one epoch, whose rollouts are those of several passes."""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from time import monotonic
from typing import Any, ClassVar

from nat.capture.context import stable_seed
from nat.data_models.finetuning import (
    FinetuneConfig,
    TrainingJobRef,
    TrainingJobStatus,
    Trajectory,
    TrajectoryCollection,
)
from nat.errors import JournalError
from nat.files import write_text
from nat.finetuning.ahead import CollectedRollouts, RolloutsAhead
from nat.finetuning.epoch import PlayedEpoch
from nat.finetuning.interfaces.trainer_adapter import TrainsElsewhere, check_ready
from nat.finetuning.preferences.trajectories import check_any_left, without_problems
from nat.finetuning.trainer import EpochTrainer
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerConfig
from nat.plugins.customizer.dpo.rows import distinct, drawn
from nat.plugins.customizer.dpo.service import BACKEND_NAME
from nat.plugins.customizer.dpo.trainer_adapter import NeMoCustomizerTrainerAdapter
from nat.preferences.pairs import SkipCause
from nat.registry.decorators import from_config, register_trainer
from nat.runs.find import find_run
from nat.runs.journal import reading
from nat.runs.rollouts import RolloutRecord
from nat.secrets import redact_json
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

PROGRESS_NAME = "data_collection_progress.jsonl"
HISTORY_NAME = "collection_history.json"
FINAL_NAME = "final_metrics.json"
NOT_WAITING = "Training job submitted (not waiting for completion)"


class NeMoCustomizerTrainer(EpochTrainer, TrainsElsewhere):
    """One job per run, with the pairs of all passes."""

    title: ClassVar[str] = "NeMo Customizer Trainer"
    run_prefix: ClassVar[str] = "nemo_dpo_"

    def __init__(self, trainer_config: NeMoCustomizerTrainerConfig, **kwargs: Any) -> None:
        super().__init__(trainer_config, **kwargs)
        self._config = trainer_config
        self._rollouts: list[RolloutRecord] = []
        self._passes: list[dict[str, Any]] = []
        self._left_out: Counter[SkipCause] = Counter()
        self._num_groups = 0
        self._ref: TrainingJobRef | None = None

    def no_verdict(self) -> str | None:
        waits = self._config.wait_for_completion
        return None if waits else "wait_for_completion is false, so the run ends before the model is trained"

    async def initialize(self, run_config: FinetuneConfig) -> None:
        await super().initialize(run_config)
        ignored = {
            "finetuning.curriculum_learning": run_config.curriculum_learning.enabled,
            "finetuning.num_epochs": run_config.num_epochs > 1,
        }
        for name in (name for name, is_set in ignored.items() if is_set):
            self.context.warn(f"{name} has no effect with {self._config.static_type()}, which submits one job per run")

    async def run(self, num_epochs: int) -> list[TrainingJobStatus]:
        """Collect, submit and wait; or wait for the job of an earlier run.

        Raises:
            NoTrajectories: no pass gave a pair.
            NoLearningSignal: no pair says which response is better.
            BackendError: the job could not be submitted, watched or deployed.

        """
        del num_epochs
        return await super().run(1) if self._config.resume is None else [await self._taken_up(self._config.resume)]

    async def _collect(self, epoch: int, run_id: str) -> CollectedRollouts:
        """All passes as one epoch: the pairs to train on, with the rollouts of every pass."""
        config, began = self._config, monotonic()
        collected: list[list[Trajectory]] = []
        for number in range(config.num_runs):
            logger.info("Starting data collection run %d/%d", number + 1, config.num_runs)
            try:
                collected += await self._collected_pass(epoch + number, f"{run_id}_run{number}")
            except Exception:
                if not config.continue_on_collection_error:
                    raise
                logger.exception("Error during data collection run %d", number)
                self.context.warn(f"Data collection failed in run {number + 1} of {config.num_runs}; it goes on")
        self._num_groups = len(collected)
        chosen = TrajectoryCollection(trajectories=collected, run_id=run_id)
        check_any_left(chosen, self._left_out)
        if config.deduplicate_pairs:
            chosen, dropped = distinct(chosen)
            self._left_out += dropped
        chosen, dropped = drawn(chosen, config.max_pairs, Random(stable_seed(self.run_config.seed, "customizer pairs")))
        self._left_out += dropped
        for cause, count in self._left_out.items():
            self.context.warn(f"{count} preference pairs are left out: {cause}")
        return CollectedRollouts(chosen, self._rollouts, monotonic() - began)

    async def _collected_pass(self, number: int, name: str) -> list[list[Trajectory]]:
        """The usable pairs of one pass, whose rollouts get generations that no other pass has."""
        check_ready(self, self.trajectory_builder)
        try:
            collected = (await super()._collect(number, name)).trajectories
        finally:  # the rollouts say why a pass gave no pairs
            played = self.trajectory_builder.rollouts(name)
            width = max((record.generation for record in played), default=0) + 1
            self._rollouts += [
                record.model_copy(update={"generation": record.generation + number * width}) for record in played
            ]
        usable, causes = without_problems(collected)
        self._left_out += causes
        if not usable.trajectories:
            logger.warning("No trajectories collected for run %d", number)
            return []
        self._passes.append(_facts_of(number, usable, run_id=self.run_id, timestamp=self.context.now().isoformat()))
        self._write_passes(self.context.journal.run_dir)
        return usable.trajectories

    def apply_curriculum_learning(
        self, trajectory_collection: TrajectoryCollection, epoch: int
    ) -> TrajectoryCollection:
        """All pairs: one job has no order of epochs."""
        check_ready(self, self.curriculum_config)
        return trajectory_collection

    async def _choose(self, epoch: int, run_id: str, rollouts: CollectedRollouts) -> PlayedEpoch:
        """All pairs; their rewards measure no weights."""
        return replace(await super()._choose(epoch, run_id, rollouts), played=False)

    async def _submit(self, played: PlayedEpoch) -> TrainingJobRef | None:
        """Record the job before its first check, too, so that another run can take it up."""
        self._ref = ref = await super()._submit(played)
        if ref is None:
            return None
        job = self.context.journal.jobs(played.epoch)[-1]
        facts = {"run_id": ref.run_id, **(ref.metadata or {})}
        self.context.append(job.model_copy(update={"training": facts}))
        logger.info("Submitted training job: %s", job.id)
        return ref

    async def _trained(self, played: PlayedEpoch, ref: TrainingJobRef | None) -> TrainingJobStatus:
        """The job's final status; or that it runs, if the run does not wait."""
        if ref is None:
            return await super()._trained(played, ref)
        waits = self._config.wait_for_completion
        status = ref.reported(JobStatus.RUNNING, message=None if waits else NOT_WAITING)
        self._write_final(status)
        if waits:
            logger.info("Waiting for training job to complete...")
            status = await super()._trained(played, ref)
            self._write_final(status)
        return status

    async def _validate_if_due(self, epoch: int, ahead: RolloutsAhead) -> float:
        """Nothing: the run plays the held-out examples before and after, and there is no epoch in between."""
        return 0.0

    async def _taken_up(self, name: str) -> TrainingJobStatus:
        """Wait for the job of an earlier run; this run goes on under its id."""
        folder = find_run(name, self.run_config.output_dir)
        with reading(folder) as journal:
            jobs = [job for job in journal.jobs() if job.backend == BACKEND_NAME and job.training]
        if not jobs:
            raise JournalError(
                f"the run {folder.name} has no job of NeMo Customizer to resume",
                hint="it ended before it submitted one; leave `resume` of the trainer out to collect pairs anew",
            )
        facts = jobs[-1].training or {}
        self._run_id = str(facts["run_id"])
        logger.info("Resuming training job %s of run %s", jobs[-1].id, folder.name)
        record = jobs[-1].model_copy(update={"status": JobStatus.PENDING, "finished_at": None, "message": None})
        self._ref = TrainingJobRef(run_id=self.run_id, backend=record.backend, metadata=facts)
        nothing = TrajectoryCollection(trajectories=[], run_id=self.run_id)
        self.context.append(record)
        status = await self._trained(PlayedEpoch(record.epoch, self.run_id, nothing, nothing, []), self._ref)
        self._statuses = [status]
        return status

    async def cleanup(self) -> None:
        """Close the adapter, too: one that the guide's constructor made has connections of its own."""
        await super().cleanup()
        if isinstance(self.trainer_adapter, NeMoCustomizerTrainerAdapter):
            await self.trainer_adapter.close()

    async def get_metrics(self, run_id: str) -> dict[str, Any]:
        """The passes, and the job's last status."""
        metrics: dict[str, Any] = {
            "run_id": run_id,
            "num_collection_runs": len(self._passes),
            "collection_runs": self._passes,
            "total_trajectory_groups": self._num_groups,
        }
        if self._ref is not None:
            status = self._statuses[-1].model_dump(mode="json") if self._statuses else {}
            metrics["training_job"] = {
                "job_id": self._ref.job_id,
                **{name: status.get(name) for name in ("status", "progress", "message")},
            }
        return metrics

    def log_progress(self, epoch: int, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Log the epoch in a line; with `output_dir`, also write the files about all passes there."""
        super().log_progress(epoch, metrics)
        if output_dir is not None:
            self._write_passes(Path(output_dir))

    def _write_passes(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / PROGRESS_NAME, "".join(f"{json.dumps(entry)}\n" for entry in self._passes))
        _write_json(folder / HISTORY_NAME, self._passes)

    def _write_final(self, status: TrainingJobStatus) -> None:
        """Write the file about the job, with a summary of the passes."""
        facts: Mapping[str, Any] = {
            "run_id": self.run_id,
            "timestamp": self.context.now().isoformat(),
            "status": str(status.status),
            "message": status.message,
            "progress": status.progress,
            "total_trajectory_groups": self._num_groups,
            "left_out": {str(cause): count for cause, count in self._left_out.items()},
            "job_metadata": status.metadata,
            "num_collection_runs": len(self._passes),
            "collection_summary": {
                "total_trajectories": sum(each["num_trajectories"] for each in self._passes),
                "total_dpo_pairs": sum(each["num_dpo_pairs"] for each in self._passes),
                "avg_reward": fmean(each["avg_reward"] for each in self._passes) if self._passes else None,
            },
        }
        _write_json(self.context.journal.run_dir / FINAL_NAME, facts)


def _facts_of(number: int, collected: TrajectoryCollection, *, run_id: str, timestamp: str) -> dict[str, Any]:
    """The numbers of a pass that has trajectories, with the keys of the toolkit's files."""
    every = [trajectory for group in collected.trajectories for trajectory in group]
    rewards = [trajectory.reward for trajectory in every]
    return {
        "run_number": number,
        "timestamp": timestamp,
        "run_id": run_id,
        "num_trajectories": len(every),
        "num_dpo_pairs": sum(len(trajectory.episode) for trajectory in every),
        "avg_reward": fmean(rewards),
        "min_reward": min(rewards),
        "max_reward": max(rewards),
    }


def _write_json(path: Path, value: Any) -> None:
    write_text(path, redact_json(json.dumps(value, indent=2, default=str)) + "\n")


register_trainer(config_type=NeMoCustomizerTrainerConfig)(from_config(NeMoCustomizerTrainer))
