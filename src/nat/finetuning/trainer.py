"""The generic trainer: per epoch collect, choose, submit, wait, record. Plug-ins register thin subclasses.

Read `EpochTrainer.run` first: it has the whole loop.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, ClassVar
from uuid import uuid4

import yaml

from nat.capture.context import stable_seed
from nat.data_models.finetuning import (
    FinetuneConfig,
    GuardsConfig,
    TrainerConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrainingStatusEnum,
    TrajectoryCollection,
)
from nat.data_models.score import mean
from nat.errors import NoLearningSignal, NoTrajectories
from nat.finetuning import curriculum, guards
from nat.finetuning.ahead import CollectedRollouts, RolloutsAhead
from nat.finetuning.best_model import keep_if_best
from nat.finetuning.budget import exceeded
from nat.finetuning.curriculum import CurriculumState
from nat.finetuning.diagnosis.catalogue import alarms
from nat.finetuning.epoch import (
    PlayedEpoch,
    epoch_record,
    finished_job,
    marked,
    reported_metrics,
    reported_usage,
    submitted_job,
    with_signal,
)
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import check_ready
from nat.finetuning.interfaces.trajectory_builder import abandoned_on_error
from nat.finetuning.progress import append_epoch_metrics
from nat.finetuning.run_log import EpochBegun, RolloutsBegun, RunLog, current_run, open_run
from nat.finetuning.staleness import without_stale
from nat.finetuning.trajectories.groups import records_of
from nat.finetuning.validation import plateaued, validate
from nat.rollout.session import in_pass
from nat.runs.journal import Journal
from nat.runs.records import BestMeasure, EpochRecord, Finding, JobRecord, Phase, RunState, epoch_number, held_out_means
from nat.runs.rollouts import tally
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

NOTHING_SUBMITTED = "no group had a difference in reward, so nothing was submitted"
_CANCEL_SECONDS = 2.0
"""Time that the job of an interrupted run may take to end."""


class EpochTrainer(Trainer):
    """Runs epochs one after the other: the rollouts of an epoch are played with the weights of all epochs before it.

    With `max_staleness`, they are played while jobs of as many epochs before train, so without the weights of those.
    It may be initialized for each phase of a run, and numbers its epochs through.
    """

    title: ClassVar[str] = "Trainer"
    """Name in the log."""
    run_prefix: ClassVar[str] = ""
    """If set, the run's name in the log and in jobs begins with it; else that name is the one of the run's folder."""

    def __init__(self, trainer_config: TrainerConfig, **kwargs: Any) -> None:
        super().__init__(trainer_config, **kwargs)
        self._context: RunLog | None = None
        self._run_id = f"{self.run_prefix}{uuid4().hex[:8]}" if self.run_prefix else None
        self._resources = ExitStack()
        self._statuses: list[TrainingJobStatus] = []

    @property
    def context(self) -> RunLog:
        """The run that this trainer was initialized in."""
        return check_ready(self, self._context)

    @property
    def run_id(self) -> str:
        """The run's name in the log and in jobs; folders have other names, which sort by time."""
        return self._run_id or self.context.run_id

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Join the current run, or open one if there is none; called for each phase that this trainer trains."""
        await super().initialize(run_config)
        self._statuses = []
        self._context = current_run()
        if self._context is None:
            text = yaml.safe_dump(run_config.model_dump(mode="json", exclude={"run_configuration"}))
            self._context = self._resources.enter_context(open_run(run_config, text))
            self._resources.callback(self._end_own_run)
        if self.run_prefix:  # the same when the run goes on, so that a server finds its jobs
            self._run_id = f"{self.run_prefix}{sha256(self._context.run_id.encode()).hexdigest()[:8]}"
        logger.info("%s initialized with run ID: %s", self.title, self.run_id)

    async def cleanup(self) -> None:
        """Close the run that this trainer opened for itself, if it did."""
        self._resources.close()

    def _end_own_run(self) -> None:
        done = [status.status is TrainingStatusEnum.COMPLETED for status in self._statuses]
        self.context.end(RunState.COMPLETED if done and all(done) else RunState.FAILED)

    async def run(self, num_epochs: int) -> list[TrainingJobStatus]:
        """Run all epochs; stop early if a job fails, by `early_stopping`, or if every rollout has the highest reward.

        Raises:
            RunFailed: a guard found that the run cannot learn.

        """
        run, run_id, ahead = self.context, self.run_id, RolloutsAhead()
        first, last = run.first_epoch, run.first_epoch + num_epochs
        total = run.total_epochs or last
        found = self._go_on()
        logger.info("Starting finetuning run with %d epochs", num_epochs)
        try:
            for epoch in range(first + len(self._statuses), last) if found is None else ():
                began = monotonic() - await self._validate_if_due(epoch, ahead)
                found = self._out_of_budget()
                if found is not None or self._reached_a_plateau():
                    break
                run.append(EpochBegun(epoch, total))
                logger.info("Starting epoch %d for run %s", epoch_number(epoch), run_id)
                collected = await self._collected(epoch, run_id, ahead)
                seconds = {"rollout": collected.seconds}
                if self.run_config.max_staleness:
                    seconds["waiting_for_rollouts"] = monotonic() - began
                played = await self._choose(epoch, run_id, collected)
                submitting = monotonic()
                ref = await self._submit(played)
                if ref is not None:
                    seconds["submit"] = monotonic() - submitting
                    self._play_ahead(ahead, epoch, last, run_id)
                training, played_before = monotonic(), ahead.seconds
                status = await self._trained(played, ref)
                self._statuses.append(status)
                if ref is not None:
                    seconds |= self._training_seconds(ahead, epoch, last, monotonic() - training, played_before)
                if status.status is not TrainingStatusEnum.COMPLETED:
                    level = logging.ERROR if status.status.final else logging.INFO
                    logger.log(level, "Training %s %s: %s", run_id, status.status, status.message)
                    break
                found = await self._finish_epoch(played, status, {"epoch": monotonic() - began, **seconds})
                logger.info("Completed epoch %d/%d", epoch_number(epoch), total)
                if found is not None:
                    break
        finally:
            await ahead.abandon()
        if found is None:
            limits = self.run_config.guards.model_copy(update={"epochs_without_signal": max(1, len(self._statuses))})
            found = self._check_signal(run.epochs(), limits)
        if found is not None:
            run.end_early(found)
        logger.info("Finetuning run completed. Processed %d epochs", len(self._statuses))
        return list(self._statuses)

    async def run_epoch(self, epoch: int, run_id: str) -> TrainingJobRef | None:
        """Collect, check, choose and submit, as `run` does; None if no group carries a learning signal.

        Raises:
            NoTrajectories: nothing can be trained on; the message counts the causes.
            TooManyFailures: more rollouts failed than `max_failure_rate` allows.

        """
        collected = await self._collected(epoch, run_id, RolloutsAhead())
        return await self._submit(await self._choose(epoch, run_id, collected))

    def apply_curriculum_learning(
        self, trajectory_collection: TrajectoryCollection, epoch: int
    ) -> TrajectoryCollection:
        """The easiest groups, as many as the curriculum allows in this epoch; all if it is off."""
        check_ready(self, self.curriculum_config)
        config = self.curriculum_config
        if not config.enabled:
            return trajectory_collection
        selection, state = curriculum.select(
            trajectory_collection.trajectories,
            CurriculumState.model_validate(self._curriculum_state),
            config,
            epoch=epoch - self.context.first_epoch,
            rng=Random(stable_seed(self.run_config.seed, "curriculum", epoch)),
            across_groups=self.trainer_adapter.recipe.compares != "group",
        )
        self._curriculum_state = state.model_dump()
        for line in curriculum.description(selection, state, epoch=epoch):
            logger.info("%s", line)
        return TrajectoryCollection(trajectories=selection.groups, run_id=trajectory_collection.run_id)

    async def get_metrics(self, run_id: str) -> dict[str, Any]:
        """The final status of each job, kept here because backends may forget them."""
        jobs = [status.model_dump(mode="json") for status in self._statuses]
        return {"run_id": run_id, "total_epochs": len(jobs), "jobs": jobs}

    def log_progress(self, epoch: int, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Log the epoch in a line; with `output_dir`, also append it to the metrics files in that folder.

        The run's folder has these files already, derived from its journal.
        """
        rewarded = "avg_reward" in metrics and metrics.get("played", True)  # that of a file's rows says nothing
        parts = [f"Avg Reward: {metrics['avg_reward']:.4f}"] if rewarded else []
        parts += [f"Trajectories: {metrics['num_trajectories']}"] if "num_trajectories" in metrics else []
        logger.info("Epoch %d progress logged%s", epoch_number(epoch), " - " + ", ".join(parts) if parts else "")
        if output_dir is not None:
            append_epoch_metrics(Path(output_dir), epoch, metrics)

    def _go_on(self) -> str | None:
        """Restore what finished epochs of the phase have led to; returns why no further one is needed, if so."""
        run = self.context
        self.trajectory_builder.go_on_from(run.journal)
        self._statuses = statuses_of(run.journal, self.run_id, run.first_epoch)
        if run.state.curriculum is not None:
            self._curriculum_state = {name: run.state.curriculum[name] for name in CurriculumState.model_fields}
        return self._judge(run.state.kept) if self._statuses else None

    async def _collected(self, epoch: int, run_id: str, ahead: RolloutsAhead) -> CollectedRollouts:
        """The rollouts of this epoch, which may have been played ahead."""
        try:
            return await (ahead.take() if ahead else self._collect(epoch, run_id))
        except NoTrajectories:
            self.context.rollouts_played(epoch, self.trajectory_builder.rollouts(run_id))
            raise

    async def _collect(self, epoch: int, run_id: str) -> CollectedRollouts:
        builder, context, began = self.trajectory_builder, self.context, monotonic()
        context.append(RolloutsBegun(Phase.TRAIN, context.num_rollouts(Phase.TRAIN)))
        meta = {"epoch": epoch, "run_id": run_id, "trainer_config": self.trainer_config.model_dump(mode="json")}
        first = (epoch - context.unplayed_epochs) * builder.passes_per_epoch
        with in_pass(numbers=count(first), keeper=context.keeper(Phase.TRAIN, epoch)):
            async with abandoned_on_error(builder, run_id):
                await builder.start_run(run_id, meta=meta)
                collected = await builder.finalize(run_id, meta=meta)
        guards.check_rewards(collected)
        guards.check_credit(self.run_config.reward_function, collected)
        groups = collected.trajectories
        trajectories = sum(map(len, groups))
        text = "Collected %d trajectories in %d groups for epoch %d"
        logger.info(text, trajectories, len(groups), epoch_number(epoch))
        return CollectedRollouts(collected, [*builder.rollouts(run_id)], monotonic() - began)

    async def _choose(self, epoch: int, run_id: str, rollouts: CollectedRollouts) -> PlayedEpoch:
        """What is trained of the rollouts; all of them are recorded before a guard judges them."""
        config, adapter, run = self.run_config, self.trainer_adapter, self.context
        compares, collected = adapter.recipe.compares, rollouts.trajectories
        known = rollouts.records or records_of(collected)
        staleness: dict[str, float] = {}
        if config.max_staleness:
            versions = run.state.versions_before(known)
            known, collected = without_stale(known, collected, versions, max_staleness=config.max_staleness)
            staleness = versions.metrics(known)
        chosen = self.apply_curriculum_learning(collected, epoch)
        if compares != "nothing" and adapter.drops_equal_groups:
            chosen = with_signal(chosen, across_groups=compares == "batch")
        chosen = chosen.model_copy(update={"job_id": f"{run_id}-{epoch_number(epoch):06d}"})
        records = marked(known, collected, chosen, config.curriculum_learning)
        run.rollouts_played(epoch, records)
        if not records:
            raise NoTrajectories(
                f"{type(self.trajectory_builder).__name__} gave no trajectory in epoch {epoch_number(epoch)}",
                hint="check that the dataset has rows and that the builder keeps some of the rollouts",
            )
        counts = tally(records)
        guards.check_trajectories(counts, target_functions=config.target_functions, target_model=config.target_model)
        guards.check_failures(counts, max_failure_rate=config.max_failure_rate)
        plays = self.trajectory_builder.trajectory_builder_config.plays
        played = PlayedEpoch(
            epoch, run_id, collected, chosen, records, staleness, played=plays, compared=compares != "nothing"
        )
        await self._keep_if_best(played)
        return played

    async def _submit(self, played: PlayedEpoch) -> TrainingJobRef | None:
        """Submit what was chosen, and record the job; None if no group was."""
        if not played.chosen.trajectories:
            return None
        ref = await self.trainer_adapter.submit(played.chosen)
        record_submitted(self.context, played, ref)
        return ref

    def _play_ahead(self, ahead: RolloutsAhead, epoch: int, last: int, run_id: str) -> None:
        """Admit the epochs that may be played while this one trains: each misses one more of the updates before it."""
        later = epoch + 1 + len(ahead)
        while self._may_play_ahead(later, last) and later <= epoch + self.run_config.max_staleness:
            ahead.admit(later, partial(self._collect, later, run_id))
            later += 1

    def _may_play_ahead(self, epoch: int, last: int) -> bool:
        """True if this epoch will take place, whatever the validation before it finds."""
        config = self.run_config
        stops = config.early_stopping is not None and self._validation_is_due(epoch)
        bounded = config.budget is not None and config.budget.limit is not None
        return epoch < last and not (stops or bounded)

    def _training_seconds(
        self, ahead: RolloutsAhead, epoch: int, last: int, trained: float, played_before: float
    ) -> Mapping[str, float]:
        """Seconds of the job; and in which of them rollouts were played, or could not be for want of new weights."""
        if not ahead:
            return {"train": trained}
        overlapped = min(ahead.seconds - played_before, trained)
        bounded = self._may_play_ahead(epoch + 1 + len(ahead), last)  # by `max_staleness` alone
        return {"train": trained, "overlapped": overlapped, "waiting_for_weights": (trained - overlapped) * bounded}

    async def _trained(self, played: PlayedEpoch, ref: TrainingJobRef | None) -> TrainingJobStatus:
        """The final status of the epoch's job."""
        if ref is None:
            logger.warning("Epoch %d: %s", epoch_number(played.epoch), NOTHING_SUBMITTED)
            return nothing_submitted(played.run_id)
        try:
            status = await self.trainer_adapter.wait_until_complete(ref)
        except asyncio.CancelledError:  # how the job ends says what the weights are, if it ends soon
            ending = asyncio.create_task(self.trainer_adapter.wait_until_complete(ref))
            await asyncio.wait({ending}, timeout=_CANCEL_SECONDS)
            if ending.cancel():
                await asyncio.wait({ending}, timeout=_CANCEL_SECONDS / 2)
            elif not ending.cancelled() and ending.exception() is None:
                record_finished(self.context, played, ending.result())
            raise
        record_finished(self.context, played, status)
        return status

    async def _finish_epoch(
        self, played: PlayedEpoch, status: TrainingJobStatus, seconds: Mapping[str, float]
    ) -> str | None:
        """Record the epoch, then let the guards judge; returns how the run has solved its examples, if it has."""
        run, phase = self.context, self.context.state.phase
        record = epoch_record(
            played,
            phase=None if phase is None else phase.name,
            timestamp=run.now(),
            curriculum=self.get_curriculum_state() if self.curriculum_config.enabled else None,
            seconds=seconds,
            job=reported_metrics(status),
            usage_of_job=reported_usage(status),
            budget=self.run_config.budget,
        )
        self.log_progress(record.epoch, record.model_dump(mode="json"))
        before = {finding.cause for finding in self._alarms()}
        await run.epoch_ended(record)
        for finding in self._alarms():
            if finding.cause not in before:  # one that lasts is not told again
                run.warn(f"Epoch {epoch_number(record.epoch)}: {finding}", finding.cause)
        return self._judge(run.state.kept)

    def _alarms(self) -> list[Finding]:
        """What the last epoch is to be warned of; nothing before the first."""
        epochs = self.context.state.kept
        return alarms(epochs, self.run_config.guards, self.trainer_adapter.recipe.compares) if epochs else []

    def _judge(self, epochs: Sequence[EpochRecord]) -> str | None:
        limits = self.run_config.guards
        found = self._check_signal(epochs, limits)
        guards.check_reward(epochs, limits)
        return found

    def _check_signal(self, epochs: Sequence[EpochRecord], limits: GuardsConfig) -> str | None:
        """How the run has solved its examples, if that is why there is nothing to compare."""
        compares = self.trainer_adapter.recipe.compares
        if compares == "nothing":
            return None
        try:
            guards.check_signal(epochs, limits, compares)
        except NoLearningSignal:
            journal = self.context.journal
            found = guards.solved(journal.epochs(), journal.validations(), last=limits.epochs_without_signal)
            if found is None:
                raise
            return found
        return None

    async def _validate_if_due(self, epoch: int, ahead: RolloutsAhead) -> float:
        """Returns the seconds that the validation waited for rollouts that are played ahead."""
        if not self._validation_is_due(epoch):
            return 0.0
        began = monotonic()
        await ahead.finish()  # the two would share the builder
        waited = monotonic() - began
        await validate(self, epoch, self.context)
        return waited

    def _validation_is_due(self, epoch: int) -> bool:
        given = self.run_config.run_configuration
        return given is not None and given.validation_dataset is not None and epoch % given.validation_interval == 0

    async def _keep_if_best(self, played: PlayedEpoch) -> None:
        """Without held-out examples, the reward of an epoch measures the weights that played it.

        Those are not the current ones if the epoch was played ahead. Scores that compare generations with each other
        measure no weights, nor do the rewards of a file.
        """
        relative = any(record.relative for record in played.records)
        if self.run_config.max_staleness or relative or not played.played:
            return
        given, number, measure = self.run_config.run_configuration, played.epoch, BestMeasure.TRAINING
        rewards = [trajectory.reward for group in played.collected.trajectories for trajectory in group]
        if rewards and (given is None or given.validation_dataset is None):
            failed = sum(record.failed for record in played.records)
            lowest = min([*rewards, *(epoch.min_reward for epoch in self.context.state.kept)])
            scores = {number: mean([*rewards, *[lowest] * failed])}
            await keep_if_best(self.trainer_adapter, self.context, epoch=number, scores=scores, measure=measure)

    def _out_of_budget(self) -> str | None:
        budget, context = self.run_config.budget, self.context
        if budget is None or budget.limit is None:
            return None
        return exceeded(
            budget,
            list(context.journal.each(EpochRecord)),
            context.journal.validations(),
            planned=context.num_rollouts(Phase.TRAIN),
        )

    def _reached_a_plateau(self) -> bool:
        config, first = self.run_config.early_stopping, self.context.first_epoch
        if config is None:
            return False
        validations = [each for each in self.context.journal.validations() if each.epoch >= first]
        scores = [score for epoch, score in held_out_means(validations).items() if self._validation_is_due(epoch)]
        if not plateaued(scores, config):
            return False
        text = f"Stopped early: the held-out reward has not risen by more than {config.min_delta:g} "
        text += f"in the last {config.patience} validations (best: {max(scores):.4f})"
        self.context.end_early(text)
        return True


def record_submitted(run: RunLog, played: PlayedEpoch, ref: TrainingJobRef) -> None:
    """Record the job that trains an epoch."""
    job = submitted_job(ref, played, run.now())
    run.append(job)
    logger.info("Submitted %d trajectories in %d groups for training", job.num_trajectories, job.num_groups)


def record_finished(run: RunLog, played: PlayedEpoch, status: TrainingJobStatus) -> JobRecord:
    """Record how the last job of the epoch has ended."""
    job = finished_job(run.journal.jobs(played.epoch)[-1], status, played, run.now())
    if status.status is JobStatus.COMPLETED:
        logger.info("Training %s completed successfully.", status.run_id)
    run.append(job)
    return job


def statuses_of(journal: Journal, run_id: str, first: int, end: int | None = None) -> list[TrainingJobStatus]:
    """The final status of each finished epoch from `first` on, before `end`."""
    jobs = {job.epoch: job for job in journal.jobs()}
    statuses = []
    for record in journal.each(EpochRecord, first, end):
        if (job := jobs.get(record.epoch)) is None:
            statuses.append(nothing_submitted(run_id))
            continue
        ref = TrainingJobRef(run_id=run_id, backend=job.backend, metadata={"job_id": job.id})
        version = job.policy_version
        statuses.append(ref.reported(job.status, message=job.message, metrics=job.metrics, policy_version=version))
    return statuses


def nothing_submitted(run_id: str) -> TrainingJobStatus:
    """The status of an epoch without a job."""
    done = TrainingStatusEnum.COMPLETED
    return TrainingJobStatus(run_id=run_id, backend="none", status=done, message=NOTHING_SUBMITTED)
