"""The log of a run: the journal keeps each event, its state is a fold of them, and then the observers hear of it."""

import gc
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from nat.data_models.finetuning import GuardsConfig
from nat.data_models.rollout_failure import FailureCount
from nat.errors import describe_error
from nat.eval.comparison import FirstAnswers
from nat.eval.failures import FAILURES_NAME
from nat.finetuning.diagnosis.catalogue import kept
from nat.finetuning.events import Event, Observer, RolloutsPlayed, Said, StateChanged, Warned
from nat.finetuning.sampling import sampling_notes
from nat.finetuning.staleness import PolicyVersions
from nat.rollout.keeping import Keeper
from nat.runs.folder import append_metrics, doublings, files_due, write_files, write_rollouts
from nat.runs.journal import Journal
from nat.runs.plot import PLOT_NAME, draw_run
from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    JobRecord,
    Phase,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
    after_epoch,
    epoch_number,
)
from nat.runs.rollouts import RolloutRecord, tally
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

EPOCHS_PER_PLOT = 10
"""Epochs between plots, each of which takes a second; doubled at epoch 200, and so on. A last plot is drawn at the
end."""
EPOCHS_PER_COLLECTION = 10

Plotter = Callable[[Path], Awaitable[str | None]]
"""Draws the plot of a run's folder; returns the error's text, or None."""


def utc_now() -> datetime:
    """The default clock of a run."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class TrainingState:
    """What the events of a run have led to; most of it is about the phase that is trained."""

    phase: TrainingPhase | None = None
    """None in a run without phases."""
    kept: Sequence[EpochRecord] = ()
    """The epochs that guards and alarms read."""
    versions: PolicyVersions = field(default_factory=PolicyVersions)
    curriculum: Mapping[str, Any] | None = None
    """Its state after the last epoch; None without a curriculum."""
    warned: frozenset[str] = field(default=frozenset(), compare=False)
    """The causes that this process has warned of; a journal keeps no messages."""

    def after(self, event: Event, guards: GuardsConfig) -> "TrainingState":
        """The state after one more event."""
        match event:
            case TrainingPhase():
                return TrainingState(event, warned=self.warned)
            case RolloutsPlayed(phase=Phase.TRAIN, records=records):
                return replace(self, versions=self.versions_before(records))
            case JobRecord(status=JobStatus.COMPLETED):
                return replace(self, versions=self.versions.updated(event.policy_version))
            case EpochRecord():
                return replace(self, kept=kept([*self.kept, event], guards), curriculum=event.curriculum_state)
            case Warned(cause=str(cause)):
                return replace(self, warned=self.warned | {cause})
        return self

    def versions_before(self, records: Sequence[RolloutRecord]) -> PolicyVersions:
        """The versions of the weights up to those that train these rollouts."""
        return self.versions if self.kept else self.versions.beginning_with(records)


def state_of(journal: Journal, guards: GuardsConfig, *, goes_on: bool = False) -> TrainingState:
    """The state after all that a journal has.

    Of a run that goes on, the open epoch happens again: its finished rollouts are known, and so is its job.
    """
    state, done = TrainingState(), journal.num_epochs()
    for event in events_of(journal):
        if not (goes_on and isinstance(event, RolloutsPlayed | JobRecord) and event.epoch >= done):
            state = state.after(event, guards)
    return state


def events_of(journal: Journal) -> Iterator[Event]:
    """The events that a journal keeps, in the order of the run; those of rollouts have no texts and tokens."""
    phases = {phase.first_epoch: phase for phase in journal.phases()}
    validations = {record.epoch: record for record in journal.validations()}
    epochs = {record.epoch: record for record in journal.each_epoch()}
    jobs: dict[int, list[JobRecord]] = {}
    for job in journal.jobs():
        jobs.setdefault(job.epoch, []).append(job)
    played = set(journal.played(Phase.TRAIN))
    for epoch in sorted({*phases, *validations, *epochs, *jobs, *played}):
        yield from filter(None, (validations.get(epoch), phases.get(epoch)))
        if epoch in played:
            yield RolloutsPlayed(Phase.TRAIN, epoch, list(journal.sampled(Phase.TRAIN, epoch)))
        yield from jobs.get(epoch, ())
        if epoch in epochs:
            yield epochs[epoch]


class RunLog:
    """One run: its events, and the state that they have led to."""

    def __init__(
        self,
        journal: Journal,
        observers: Sequence[Observer] = (),
        *,
        guards: GuardsConfig | None = None,
        now: Callable[[], datetime] = utc_now,
        plotter: Plotter = draw_run,
        planned: Mapping[str | None, Mapping[Phase, int]] | None = None,
        total_epochs: int | None = None,
        goes_on: bool = False,
    ) -> None:
        """Begin with an empty journal, or go on from what it has.

        `planned` has the rollouts of an epoch and of a validation, by the name of the phase. `guards` decide which
        epochs the state keeps. A run that `goes_on` was begun by an earlier process. `total_epochs` are those of all
        phases.
        """
        self.journal = journal
        self.run_id = journal.info().run_id  # jobs are found by it, wherever the folder was copied to
        self.guards = guards or GuardsConfig()
        self.now = now
        self.total_epochs = total_epochs
        self.goes_on = goes_on
        self.state = state_of(journal, self.guards, goes_on=True)
        self.first_answers: FirstAnswers = {}
        """For evaluators that compare: the held-out answers from before training."""
        spent = sum(epoch.seconds for epoch in journal.each_epoch())
        spent += sum(validation.seconds for validation in journal.each_validation())
        self._began = monotonic() - spent
        self._planned = planned or {}
        self._plotter = plotter
        self._observers = (self._write_files, self._log, *observers)

    def append(self, event: Event) -> None:
        """Keep the event, and tell the observers in their order.

        Raises:
            JournalError: it cannot be kept; nobody hears of it then.

        """
        if isinstance(event, StateChanged) and event.state is RunState.COMPLETED:
            write_files(self.journal)  # before that is kept: nobody goes on with a completed run for its files
        self._keep(event)
        self.state = self.state.after(event, self.guards)
        for observe in self._observers:
            observe(event)

    def say(self, text: str) -> None:
        """Show a message to those who watch the run."""
        self.append(Said(text))

    def warn(self, text: str, cause: str | None = None) -> None:
        """Log a message, and show it; the state remembers the cause."""
        self.append(Warned(text, cause))

    def warn_once(self, text: str, cause: str) -> None:
        """Warn unless this process has warned of the cause."""
        if cause not in self.state.warned:
            self.warn(text, cause)

    def rollouts_played(self, epoch: int, records: Sequence[RolloutRecord]) -> None:
        """Record the rollouts of an epoch, before a guard may end the run because of them."""
        self.append(RolloutsPlayed(Phase.TRAIN, epoch, records))
        for cause, text in sampling_notes(records).items():
            self.warn_once(f"Epoch {epoch_number(epoch)}: {text}", cause)

    async def epoch_ended(self, record: EpochRecord) -> None:
        """Record an epoch, and draw the plot if it is due."""
        self.append(record)
        count = record.epoch + 1
        if count % EPOCHS_PER_COLLECTION == 0:
            gc.collect()  # commands let the collector run seldom, and an epoch leaves a hundred objects in cycles
        if count % (EPOCHS_PER_PLOT * doublings(count // 100)) == 0:
            await self._draw()

    async def summarised(self, summary: RunSummary) -> RunSummary:
        """Record the summary, which the plot shows, and then that there is a plot; returns the last record."""
        self.append(summary)
        if await self._draw():
            summary = summary.model_copy(update={"plot": PLOT_NAME})
            self.append(summary)
        return summary

    def end_early(self, why: str) -> None:
        """Report and record why the run ends before its last epoch although nothing went wrong."""
        logger.info("%s", why)
        self.say(why)
        self.append(StateChanged(RunState.RUNNING, self.now(), why))

    def end(self, state: RunState, message: str | None = None) -> None:
        """Record the final state and why, by default as `end_early` recorded, and write the files a last time."""
        self.append(StateChanged(state, self.now(), message or self.journal.info().message))

    @property
    def seconds(self) -> float:
        """Since the run was opened, and those of the epochs and validations that it had then."""
        return monotonic() - self._began

    @property
    def first_epoch(self) -> int:
        """The first epoch of the phase, since epochs are numbered through."""
        return 0 if self.state.phase is None else self.state.phase.first_epoch

    def epochs(self) -> list[EpochRecord]:
        """The finished epochs of the phase."""
        return list(self.journal.each_epoch(self.first_epoch))

    @property
    def unplayed_epochs(self) -> int:
        """Epochs of earlier phases that trained on a file."""
        return sum(not each.played for each in islice(self.journal.each_epoch(), self.first_epoch))

    def num_rollouts(self, phase: Phase) -> int | None:
        """Rollouts of an epoch or a validation; None if the number is not known."""
        training = self.state.phase
        return self._planned.get(None if training is None else training.name, {}).get(phase)

    def keeper(self, phase: Phase, epoch: int) -> Keeper:
        """Keeps what these rollouts finish, and knows what an earlier process has finished.

        Failures count as finished once the epoch was submitted: the job has trained without them.
        """
        journal = self.journal
        submitted = phase is Phase.TRAIN and bool(journal.jobs(epoch))
        return Keeper(journal.kept(phase, epoch), partial(journal.keep, phase, epoch), with_failures=submitted)

    async def _draw(self) -> bool:
        """Draw the plot in a process of its own; a failure is logged and does not end the run."""
        run_dir = self.journal.run_dir
        try:
            failure = await self._plotter(run_dir)
        except OSError as error:  # no further process can be started
            failure = describe_error(error)
        if failure is not None:
            text = "%s could not be drawn; journal and metrics are complete: %s"
            logger.warning(text, run_dir / PLOT_NAME, failure)
        return failure is None

    def _keep(self, event: Event) -> None:
        journal = self.journal
        match event:
            case TrainingPhase():
                journal.record_phase(event)
            case RolloutsPlayed():
                journal.record_rollouts(event.phase, event.epoch, event.records)
            case JobRecord():
                journal.record_job(event)
            case EpochRecord():
                journal.record_epoch(event)
            case ValidationRecord():
                journal.record_validation(event)
            case BestEpoch():
                journal.record_best(event)
            case RunSummary():
                journal.record_summary(event)
            case StateChanged():
                journal.set_state(event.state, at=event.at, message=event.message)

    def _write_files(self, event: Event) -> None:
        """Files with all epochs are written less often as they grow, which bounds the cost."""
        match event:
            case RolloutsPlayed():
                write_rollouts(self.journal, event.phase, event.epoch)
            case EpochRecord() if files_due(event.epoch + 1):
                write_files(self.journal)
            case EpochRecord():
                append_metrics(self.journal.run_dir, event)
            case StateChanged() if event.state not in {RunState.RUNNING, RunState.COMPLETED}:
                write_files(self.journal)

    def _log(self, event: Event) -> None:
        """The lines of the log, whose wording the guide's users search for."""
        match event:
            case TrainingPhase():
                logger.info("%s", event)
            case RolloutsPlayed(phase=Phase.TRAIN):
                counts = tally(event.records)
                self._log_failures(counts.failures, f"Epoch {epoch_number(event.epoch)}", counts.num_rollouts)
            case ValidationRecord():
                average, count, when = event.avg_reward, event.num_examples, after_epoch(event.epoch)
                logger.info("Validation %s - Avg Reward: %.4f over %d examples", when, average, count)
                self._log_failures(event.failures, f"Held-out {when}", event.num_rollouts)
            case BestEpoch():
                logger.info("Best so far: %s", event)
            case Warned():
                logger.warning("%s", event.text)

    def _log_failures(self, failures: Sequence[FailureCount], where: str, num_rollouts: int) -> None:
        """Name the file with their tracebacks, if there are any."""
        if failures:
            failed, causes = sum(each.count for each in failures), "; ".join(map(str, failures))
            place = self.journal.run_dir / FAILURES_NAME
            logger.warning("%s: %d of %d rollouts failed: %s (see %s)", where, failed, num_rollouts, causes, place)
