"""The generic trainer: per epoch collect, choose, submit, wait, record. Plug-ins register thin subclasses.

Read `EpochTrainer.run` first: it has the whole loop.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

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
from nat.errors import NoLearningSignal, NoTrajectories, RunFailed
from nat.finetuning import curriculum, guards
from nat.finetuning.ahead import CollectedRollouts, RolloutsAhead
from nat.finetuning.best_model import keep_if_best
from nat.finetuning.budget import exceeded
from nat.finetuning.curriculum import CurriculumState
from nat.finetuning.diagnosis.catalogue import alarms, broken_by_update
from nat.finetuning.epoch import PlayedEpoch, epoch_record, marked, reported_metrics, reported_usage, with_signal
from nat.finetuning.events import EpochBegun, RolloutsBegun
from nat.finetuning.interfaces.trainer_adapter import check_ready
from nat.finetuning.interfaces.trajectory_builder import abandoned_on_error
from nat.finetuning.progress import append_epoch_metrics
from nat.finetuning.recording_trainer import (
    NOTHING_SUBMITTED,
    RecordingTrainer,
    nothing_submitted,
    record_epoch,
    record_finished,
    record_rollouts,
    record_submitted,
    statuses_of,
    warn_of,
)
from nat.finetuning.run_context import Stopwatch
from nat.finetuning.run_log import TrainingState
from nat.finetuning.staleness import without_stale
from nat.finetuning.trajectories.groups import records_of
from nat.finetuning.validation import plateaued, validate
from nat.rollout.session import in_pass
from nat.runs.records import BestMeasure, EpochRecord, Finding, JobRecord, Phase, epoch_number, held_out_means
from nat.runs.rollouts import tally

logger = logging.getLogger(__name__)

_CANCEL_SECONDS = 2.0
"""Time that the job of an interrupted run may take to end."""


class EpochTrainer(RecordingTrainer):
    """Runs epochs one after the other: the rollouts of an epoch are played with the weights of all epochs before it.

    With `max_staleness`, they are played while jobs of as many epochs before train, so without the weights of those.
    It may be initialized for each phase of a run, and numbers its epochs through.
    """

    def __init__(self, trainer_config: TrainerConfig, **kwargs: Any) -> None:
        super().__init__(trainer_config, **kwargs)
        self._forget_epochs()
        # Set by `initialize` and by each `run_epoch`.
        self._watch: Stopwatch
        self._played: PlayedEpoch
        self._job: JobRecord

    def _forget_epochs(self) -> None:
        """Set what is known of the epochs of a phase to its beginning."""
        self._statuses = []
        self._ahead = RolloutsAhead()
        self._bounded = False
        """Whether `max_staleness` alone keeps the next epoch from being played."""
        self._waited = 0.0
        """Seconds that a validation waited for the rollouts of the next epoch."""

    async def initialize(self, run_config: FinetuneConfig) -> None:
        await super().initialize(run_config)
        self._forget_epochs()

    def _go_on(self) -> str | None:
        """Restore what finished epochs of the phase have led to; returns why no further one is needed, if so."""
        journal, state = self.context.journal, self._state
        self.trajectory_builder.go_on_from(journal)
        self._statuses = statuses_of(journal, self.run_id, self.context.first_epoch)
        if state.curriculum is not None:
            self._curriculum_state = {name: state.curriculum[name] for name in CurriculumState.model_fields}
        return self._judge(state.kept) if self._statuses else None

    async def run(self, num_epochs: int) -> list[TrainingJobStatus]:
        """Run all epochs; stop early if a job fails, by `early_stopping`, or if every rollout has the highest reward.

        Raises:
            RunFailed: a guard found that the run cannot learn.

        """
        run_id, first = self.run_id, self.context.first_epoch
        last = first + num_epochs
        total = self.context.total_epochs or last
        found = self._go_on()
        logger.info("Starting finetuning run with %d epochs", num_epochs)
        try:
            for epoch in range(first + len(self._statuses), last) if found is None else ():
                await self._validate_if_due(epoch)
                found = self._out_of_budget()
                if found is not None or self._reached_a_plateau():
                    break
                self.context.append(EpochBegun(epoch, total))
                ref = await self.run_epoch(epoch, run_id)
                if ref is not None:
                    self._play_ahead(epoch, last, run_id)
                status = await self._trained(ref)
                self._statuses.append(status)
                if status.status is not TrainingStatusEnum.COMPLETED:
                    level = logging.ERROR if status.status.final else logging.INFO
                    logger.log(level, "Training %s %s: %s", run_id, status.status, status.message)
                    break
                found = await self._finish_epoch(status)
                logger.info("Completed epoch %d/%d", epoch_number(epoch), total)
                if found is not None:
                    break
        finally:
            await self._ahead.abandon()
        if found is None:
            limits = self.run_config.guards.model_copy(update={"epochs_without_signal": max(1, len(self._statuses))})
            found = self._check_signal(self.context.epochs(), limits)
        if found is not None:
            self.context.end_early(found)
        logger.info("Finetuning run completed. Processed %d epochs", len(self._statuses))
        return list(self._statuses)

    async def run_epoch(self, epoch: int, run_id: str) -> TrainingJobRef | None:
        """Collect, check, choose and submit; None if no group carries a learning signal.

        Raises:
            NoTrajectories: nothing can be trained on; the message counts the causes.
            TooManyFailures: more rollouts failed than `max_failure_rate` allows.

        """
        config, adapter = self.run_config, self.trainer_adapter
        self._watch, self._waited = Stopwatch(already=self._waited), 0.0
        logger.info("Starting epoch %d for run %s", epoch_number(epoch), run_id)
        try:
            played = await self._played_rollouts(epoch, run_id)
        except NoTrajectories:
            record_rollouts(self.context, epoch, self.trajectory_builder.rollouts(run_id))
            raise
        collected = played.trajectories
        known = played.records or records_of(collected)
        staleness: dict[str, float] = {}
        if config.max_staleness:
            versions = self._state.versions_before(known)
            known, collected = without_stale(known, collected, versions, max_staleness=config.max_staleness)
            staleness = versions.metrics(known)
        chosen = self.apply_curriculum_learning(collected, epoch)
        if adapter.recipe.compares != "nothing" and adapter.drops_equal_groups:
            chosen = with_signal(chosen, across_groups=adapter.recipe.compares == "batch")
        chosen = chosen.model_copy(update={"job_id": f"{run_id}-{epoch_number(epoch):06d}"})
        records = marked(known, collected, chosen, config.curriculum_learning)
        record_rollouts(self.context, epoch, records)
        if not records:
            raise NoTrajectories(
                f"{type(self.trajectory_builder).__name__} gave no trajectory in epoch {epoch_number(epoch)}",
                hint="check that the dataset has rows and that the builder keeps some of the rollouts",
            )
        counts = tally(records)
        guards.check_trajectories(
            counts,
            target_functions=config.target_functions,
            target_model=config.target_model,
            broken_by=self._broken_by,
        )
        guards.check_failures(counts, max_failure_rate=config.max_failure_rate, broken_by=self._broken_by)
        self._played = PlayedEpoch(
            epoch,
            run_id,
            collected,
            chosen,
            records,
            staleness,
            played=self.trajectory_builder.trajectory_builder_config.plays,
            compared=adapter.recipe.compares != "nothing",
        )
        await self._keep_if_best()
        if not chosen.trajectories:
            return None
        with self._watch.timing("submit"):
            ref = await adapter.submit(chosen)
        self._job = record_submitted(self.context, self._played, ref)
        return ref

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

    def _play_ahead(self, epoch: int, last: int, run_id: str) -> None:
        """Admit the epochs that may be played while this one trains: each misses one more of the updates before it."""
        later = epoch + 1 + len(self._ahead)
        while self._may_play_ahead(later, last) and later <= epoch + self.run_config.max_staleness:
            self._ahead.admit(later, partial(self._collect, later, run_id))
            later += 1
        self._bounded = self._may_play_ahead(later, last)

    def _may_play_ahead(self, epoch: int, last: int) -> bool:
        """True if this epoch will take place, whatever the validation before it finds."""
        config = self.run_config
        stops = config.early_stopping is not None and self._validation_is_due(epoch)
        bounded = config.budget is not None and config.budget.limit is not None
        return epoch < last and not (stops or bounded)

    async def _played_rollouts(self, epoch: int, run_id: str) -> CollectedRollouts:
        """The rollouts of this epoch, which may have been played ahead."""
        played = await (self._ahead.take() if self._ahead else self._collect(epoch, run_id))
        self._watch.stages["rollout"] = played.seconds
        if self.run_config.max_staleness:
            self._watch.stages["waiting_for_rollouts"] = self._watch.total
        return played

    async def _collect(self, epoch: int, run_id: str) -> CollectedRollouts:
        builder, context, watch = self.trajectory_builder, self.context, Stopwatch()
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
        return CollectedRollouts(collected, [*builder.rollouts(run_id)], watch.total)

    async def _trained(self, ref: TrainingJobRef | None) -> TrainingJobStatus:
        """The final status of the epoch's job."""
        if ref is None:
            logger.warning("Epoch %d: %s", epoch_number(self._played.epoch), NOTHING_SUBMITTED)
            return nothing_submitted(self._played.run_id)
        played_before = self._ahead.seconds
        with self._watch.timing("train"):
            try:
                status = await self.trainer_adapter.wait_until_complete(ref)
            except asyncio.CancelledError:
                await self._record_canceled(ref)
                raise
        if self._ahead:
            trained = self._watch.stages["train"]
            self._watch.stages["overlapped"] = overlapped = min(self._ahead.seconds - played_before, trained)
            self._watch.stages["waiting_for_weights"] = (trained - overlapped) * self._bounded
        record_finished(self.context, self._job, self._played, status)
        return status

    async def _record_canceled(self, ref: TrainingJobRef) -> None:
        """Record how the job of an interrupted run ended, which says what the weights are, if it ends soon."""
        job = asyncio.create_task(self.trainer_adapter.wait_until_complete(ref))
        await asyncio.wait({job}, timeout=_CANCEL_SECONDS)
        if job.cancel():
            await asyncio.wait({job}, timeout=_CANCEL_SECONDS / 2)
        elif not job.cancelled() and job.exception() is None:
            record_finished(self.context, self._job, self._played, job.result())

    async def _finish_epoch(self, status: TrainingJobStatus) -> str | None:
        """Record the epoch, then let the guards judge; returns how the run has solved its examples, if it has."""
        record = epoch_record(
            self._played,
            phase=None if self.context.phase is None else self.context.phase.name,
            timestamp=self.context.now(),
            curriculum=self.get_curriculum_state() if self.curriculum_config.enabled else None,
            seconds=self._watch.total,
            stages=self._watch.stages,
            job=reported_metrics(status),
            usage_of_job=reported_usage(status),
            budget=self.run_config.budget,
        )
        self.log_progress(record.epoch, record.model_dump(mode="json"))
        before = {finding.cause for finding in self._alarms()}
        await record_epoch(self.context, record)
        warn_of(self.context, record.epoch, self._alarms(), before=before)
        try:
            return self._judge(self._state.kept)
        except RunFailed:
            self._judge(self.context.epochs())  # all epochs may explain more than the window
            raise

    @property
    def _state(self) -> TrainingState:
        return self.context.log.state

    def _alarms(self) -> list[Finding]:
        """What the last epoch is to be warned of; nothing before the first."""
        epochs = self._state.kept
        return alarms(epochs, self.run_config.guards, self.trainer_adapter.recipe.compares) if epochs else []

    def _broken_by(self) -> Finding | None:
        return broken_by_update(self.context.epochs(), self.run_config.guards)

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

    async def _validate_if_due(self, epoch: int) -> None:
        if self._validation_is_due(epoch):
            waiting = Stopwatch()
            await self._ahead.finish()  # the two would share the builder
            self._waited = waiting.total
            await validate(self, epoch, self.context)

    def _validation_is_due(self, epoch: int) -> bool:
        given = self.run_config.run_configuration
        return given is not None and given.validation_dataset is not None and epoch % given.validation_interval == 0

    async def _keep_if_best(self) -> None:
        """Without held-out examples, the reward of an epoch measures the weights that played it.

        Those are not the current ones if the epoch was played ahead. Scores that compare generations with each other
        measure no weights, nor do the rewards of a file.
        """
        relative = any(record.comparison is not None for record in self._played.records)
        if self.run_config.max_staleness or relative or not self._played.played:
            return
        given, number, measure = self.run_config.run_configuration, self._played.epoch, BestMeasure.TRAINING
        rewards = [trajectory.reward for group in self._played.collected.trajectories for trajectory in group]
        if rewards and (given is None or given.validation_dataset is None):
            failed = sum(record.failed for record in self._played.records)
            lowest = min([*rewards, *(epoch.min_reward for epoch in self._state.kept)])
            scores = {number: mean([*rewards, *[lowest] * failed])}
            await keep_if_best(self.trainer_adapter, self.context, epoch=number, scores=scores, measure=measure)

    def _out_of_budget(self) -> str | None:
        budget, context = self.run_config.budget, self.context
        if budget is None or budget.limit is None:
            return None
        return exceeded(
            budget,
            list(context.journal.each_epoch()),
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
