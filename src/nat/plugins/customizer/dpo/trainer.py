"""The trainer of preference pairs: collect in several passes, submit one job, wait for it.

The journal gets the rollouts, the job and the validations, but no record of an epoch: its rewards and its diagnosis
compare rollouts of a group, and a pair is a comparison by itself.
"""

import logging
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from nat.capture.policy import stable_seed
from nat.data_models.finetuning import (
    FinetuneConfig,
    TrainingJobRef,
    TrainingJobStatus,
    Trajectory,
    TrajectoryCollection,
)
from nat.errors import JournalError
from nat.finetuning.epoch import PlayedEpoch, submitted_job
from nat.finetuning.events import EpochBegun, RolloutsBegun
from nat.finetuning.interfaces.lifecycle import check_ready
from nat.finetuning.interfaces.trainer_adapter import TrainsElsewhere
from nat.finetuning.interfaces.trajectory_builder import abandoned_on_error
from nat.finetuning.preferences.trajectories import check_any_left, without_problems
from nat.finetuning.recorder import record_finished, record_rollouts
from nat.finetuning.recording_trainer import RecordingTrainer
from nat.plugins.customizer.dpo.collection import PassMetrics, renumbered, write_final, write_passes
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerConfig
from nat.plugins.customizer.dpo.rows import distinct, drawn
from nat.plugins.customizer.dpo.service import BACKEND_NAME
from nat.plugins.customizer.dpo.trainer_adapter import NeMoCustomizerTrainerAdapter
from nat.preferences.skips import SkipCause
from nat.registry.decorators import from_config, register_trainer
from nat.runs.find import find_run
from nat.runs.journal import reading
from nat.runs.records import JobRecord, Phase
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

NOT_WAITING = "Training job submitted (not waiting for completion)"


class NeMoCustomizerTrainer(RecordingTrainer, TrainsElsewhere):
    """One job per run, with the pairs of all passes."""

    title: ClassVar[str] = "NeMo Customizer Trainer"
    run_prefix: ClassVar[str] = "nemo_dpo_"

    def __init__(self, trainer_config: NeMoCustomizerTrainerConfig, **kwargs: Any) -> None:
        super().__init__(trainer_config, **kwargs)
        self._config = trainer_config
        self._collected: list[list[Trajectory]] = []
        self._rollouts: list[RolloutRecord] = []
        self._passes: list[PassMetrics] = []
        self._left_out: Counter[SkipCause] = Counter()
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
        if self._config.resume is None:
            played = await self._collect_passes()
            ref = await self.trainer_adapter.submit(played.chosen)
            job = submitted_job(ref, played, self.context.now())
            job = job.model_copy(update={"training": {"run_id": ref.run_id, **(ref.metadata or {})}})
        else:
            played, job = None, self._job_of(self._config.resume)
            ref = TrainingJobRef(run_id=self.run_id, backend=job.backend, metadata=job.training)
        self._ref = ref
        self.context.append(job)  # before the first check, so that another run can take it up
        logger.info("Submitted training job: %s", job.id)
        status = await self._end(ref, job, played)
        self._statuses = [status]
        self._write_final(status)
        return [status]

    async def run_epoch(self, epoch: int, run_id: str) -> TrainingJobRef | None:
        """One pass; its pairs are kept for the job."""
        config, builder, context = self._config, self.trajectory_builder, self.context
        logger.info("Starting data collection run %d/%d", epoch + 1, config.num_runs)
        context.append(EpochBegun(epoch, config.num_runs))
        context.append(RolloutsBegun(Phase.TRAIN, context.num_rollouts(Phase.TRAIN)))
        name = f"{run_id}_run{epoch}"
        meta = {
            "run_number": epoch,
            "epoch": epoch,
            "run_id": run_id,
            "trainer_config": config.model_dump(mode="json"),
        }
        try:
            async with abandoned_on_error(builder, name):
                await builder.start_run(name, meta=meta)
                collected = await builder.finalize(name, meta=meta)
        finally:  # the rollouts say why a pass gave no pairs
            self._rollouts += renumbered(builder.rollouts(name), epoch)
            record_rollouts(self.context, 0, self._rollouts)
        usable, causes = without_problems(collected)
        self._left_out += causes
        if not usable.trajectories:
            logger.warning("No trajectories collected for run %d", epoch)
            return None
        self._collected += usable.trajectories
        self._passes.append(PassMetrics.of(epoch, usable, run_id=run_id, timestamp=context.now()))
        self.log_progress(epoch, self._passes[-1].model_dump(mode="json"))
        return None

    def apply_curriculum_learning(
        self,
        trajectory_collection: TrajectoryCollection,
        epoch: int,
    ) -> TrajectoryCollection:
        """All pairs: one job has no order of epochs."""
        check_ready(self, self.curriculum_config)
        return trajectory_collection

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
            "collection_runs": [each.model_dump(mode="json") for each in self._passes],
            "total_trajectory_groups": len(self._collected),
        }
        if self._ref is not None:
            status = self._statuses[-1].model_dump(mode="json") if self._statuses else {}
            metrics["training_job"] = {
                "job_id": self._ref.job_id,
                **{name: status.get(name) for name in ("status", "progress", "message")},
            }
        return metrics

    def log_progress(self, epoch: int, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Log the pass in a line, and write the files about all passes so far."""
        write_passes(self.context.journal.run_dir if output_dir is None else Path(output_dir), self._passes)
        pairs, reward = metrics.get("num_dpo_pairs", 0), metrics.get("avg_reward", 0.0)
        logger.info("Run %d: %d DPO pairs, avg reward: %.4f", epoch + 1, pairs, reward)

    async def _collect_passes(self) -> PlayedEpoch:
        """All passes, and the pairs to train on."""
        config, run_id = self._config, self.run_id
        for number in range(config.num_runs):
            try:
                await self.run_epoch(number, run_id)
            except Exception:
                if not config.continue_on_collection_error:
                    raise
                logger.exception("Error during data collection run %d", number)
                self.context.warn(f"Data collection failed in run {number + 1} of {config.num_runs}; it goes on")
        collected = chosen = TrajectoryCollection(trajectories=self._collected, run_id=run_id)
        check_any_left(collected, self._left_out)
        if config.deduplicate_pairs:
            chosen, dropped = distinct(chosen)
            self._left_out += dropped
        rng = Random(stable_seed(self.run_config.seed, "customizer pairs"))
        chosen, dropped = drawn(chosen, config.max_pairs, rng)
        self._left_out += dropped
        for cause, count in self._left_out.items():
            self.context.warn(f"{count} preference pairs are left out: {cause}")
        return PlayedEpoch(0, run_id, collected, chosen, self._rollouts)

    def _job_of(self, name: str) -> JobRecord:
        """The job of an earlier run; this run goes on under its id."""
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
        return jobs[-1].model_copy(update={"status": JobStatus.PENDING, "finished_at": None, "message": None})

    async def _end(self, ref: TrainingJobRef, job: JobRecord, played: PlayedEpoch | None) -> TrainingJobStatus:
        """The job's final status, recorded; or that it runs, if the run does not wait."""
        status = ref.reported(JobStatus.RUNNING, message=None if self._config.wait_for_completion else NOT_WAITING)
        self._write_final(status)
        if self._config.wait_for_completion:
            logger.info("Waiting for training job to complete...")
            adapter, nothing = self.trainer_adapter, TrajectoryCollection(trajectories=[], run_id=ref.run_id)
            status = await adapter.wait_until_complete(ref)
            played = played or PlayedEpoch(0, ref.run_id, nothing, nothing, [])
            record_finished(self.context, job, played, status)
        return status

    def _write_final(self, status: TrainingJobStatus) -> None:
        facts = {
            "run_id": self.run_id,
            "timestamp": self.context.now().isoformat(),
            "status": str(status.status),
            "message": status.message,
            "progress": status.progress,
            "total_trajectory_groups": len(self._collected),
            "left_out": {str(cause): count for cause, count in self._left_out.items()},
            "job_metadata": status.metadata,
        }
        write_final(self.context.journal.run_dir, facts, self._passes)


register_trainer(config_type=NeMoCustomizerTrainerConfig)(from_config(NeMoCustomizerTrainer))
