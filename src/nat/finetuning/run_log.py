"""The log of a run: the journal keeps each event, its state is a fold of them, and then the observers hear of it.

Records of the journal are events, too: a job that was submitted or has ended, an epoch, a validation. The runtime opens
a run around a trainer. The constructors of the guide have no parameter for it, so it travels with the current pass; a
trainer that is used without the runtime opens a run itself.
"""

import gc
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from nat.data_models.finetuning import FinetuneConfig, GuardsConfig
from nat.data_models.rollout_failure import FailureCount
from nat.errors import describe_error
from nat.eval.comparison import FirstAnswers
from nat.eval.failures import FAILURES_NAME
from nat.files import remove_unfinished
from nat.finetuning.diagnosis.catalogue import kept
from nat.finetuning.sampling import sampling_notes
from nat.finetuning.staleness import PolicyVersions
from nat.rollout.keeping import Keeper
from nat.rollout.session import current_pass, in_pass
from nat.runs.find import remember_run
from nat.runs.folder import (
    append_metrics,
    create_run_folder,
    doublings,
    files_due,
    new_run_id,
    trajectories_folder,
    write_files,
    write_rollouts,
)
from nat.runs.journal import Journal
from nat.runs.liveness import marked_alive
from nat.runs.log_file import log_kept
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
from nat.secrets import redacted_logs
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

EPOCHS_PER_PLOT = 10
"""Epochs between plots, each of which takes a second; doubled at epoch 200, and so on. A last plot is drawn at the
end."""
EPOCHS_PER_COLLECTION = 10


def utc_now() -> datetime:
    """The default clock of a run."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A step that may take long has begun, such as "loading the model"; rollouts and training have other events."""

    what: str


@dataclass(frozen=True, slots=True)
class RunBegun:
    """The components are built, and the first epoch is next."""

    run_id: str
    run_dir: Path
    num_epochs: int
    goes_on: bool = False
    """Whether an earlier process has begun it; the next epoch may then be partly done."""


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """The rollouts of an epoch are next."""

    epoch: int
    """From 0."""
    num_epochs: int


@dataclass(frozen=True, slots=True)
class RolloutsBegun:
    """The rollouts of an epoch or a validation are being played."""

    phase: Phase
    total: int | None
    """All generations; None if it is not known."""


@dataclass(frozen=True, slots=True)
class RolloutDone:
    """One rollout has ended."""

    error: str | None
    """Why it failed; None if it did not."""


@dataclass(frozen=True, slots=True)
class RolloutsPlayed:
    """All rollouts of an epoch or a validation."""

    phase: Phase
    epoch: int
    records: Sequence[RolloutRecord]


@dataclass(frozen=True, slots=True)
class Said:
    """A message for people, in one or more whole sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Warned(Said):
    """Likewise, of something that is likely wrong; it stands in the log as well."""

    cause: str | None = None
    """What it is about, if it is not to be explained twice."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The run goes on and says that it ends early, or has ended."""

    state: RunState
    at: datetime
    message: str | None


Event = (
    StepBegun
    | RunBegun
    | TrainingPhase
    | EpochBegun
    | RolloutsBegun
    | RolloutDone
    | RolloutsPlayed
    | JobRecord
    | EpochRecord
    | ValidationRecord
    | BestEpoch
    | RunSummary
    | Said
    | StateChanged
)
Observer = Callable[[Event], None]
"""Hears of each event after the journal has it, on the run's event loop."""

Plotter = Callable[[Path], Awaitable[str | None]]
"""Draws the plot of a run's folder; returns the error's text, or None."""


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
    """The events that a journal keeps, in the order of the run.

    The state depends on the rollouts of a phase's first epoch alone, so those of others are not read.
    """
    phases = {phase.first_epoch: phase for phase in journal.phases()}
    validations = {record.epoch: record for record in journal.validations()}
    epochs = {record.epoch: record for record in journal.each(EpochRecord)}
    begins = {0, *phases}
    jobs: dict[int, list[JobRecord]] = {}
    for job in journal.jobs():
        jobs.setdefault(job.epoch, []).append(job)
    played = set(journal.played(Phase.TRAIN))
    for epoch in sorted({*phases, *validations, *epochs, *jobs, *played}):
        yield from filter(None, (validations.get(epoch), phases.get(epoch)))
        if epoch in played & begins:
            yield RolloutsPlayed(Phase.TRAIN, epoch, list(journal.rollouts(Phase.TRAIN, epoch)))
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
        spent = sum(epoch.seconds for epoch in journal.each(EpochRecord))
        spent += sum(validation.seconds for validation in journal.each(ValidationRecord))
        self._began = monotonic() - spent
        self._planned = planned or {}
        self._plotter = plotter
        self._observers = (self._log, *observers)

    def append(self, event: Event) -> None:
        """Keep the event, and tell the observers in their order.

        Raises:
            JournalError: it cannot be kept; nobody hears of it then.

        """
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
        return list(self.journal.each(EpochRecord, self.first_epoch))

    @property
    def unplayed_epochs(self) -> int:
        """Epochs of earlier phases that trained on a file."""
        return sum(not each.played for each in self.journal.each(EpochRecord, 0, self.first_epoch))

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
        """Keep the event, and write the files that follow from it.

        Files with all epochs are written less often as they grow, which bounds the cost.
        """
        journal = self.journal
        match event:
            case RolloutsPlayed():
                journal.record_rollouts(event.phase, event.epoch, event.records)
                write_rollouts(journal, event.phase, event.epoch)
            case EpochRecord():
                journal.record(event)
                if files_due(event.epoch + 1):
                    write_files(journal)
                else:
                    append_metrics(journal.run_dir, event)
            case TrainingPhase() | JobRecord() | ValidationRecord() | BestEpoch() | RunSummary():
                journal.record(event)
            case StateChanged():
                if event.state is RunState.COMPLETED:  # nobody goes on with a completed run for its files
                    write_files(journal)
                journal.set_state(event.state, at=event.at, message=event.message)
                if event.state not in {RunState.RUNNING, RunState.COMPLETED}:
                    write_files(journal)

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


def current_run() -> RunLog | None:
    """The current run; None outside of a run."""
    run = current_pass().run
    return run if isinstance(run, RunLog) else None


@contextmanager
def open_run(
    config: FinetuneConfig,
    config_text: str,
    *,
    resume: Path | None = None,
    planned: Mapping[str | None, Mapping[Phase, int]] | None = None,
    observers: Sequence[Observer] = (),
    now: Callable[[], datetime] = utc_now,
    plotter: Plotter = draw_run,
) -> Iterator[RunLog]:
    """Open a new run: create its folder under `output_dir` and its journal, and close them at the end.

    With `resume`, a run's folder, that run goes on.

    Raises:
        JournalError: another process trains it, it would write to files elsewhere, or it cannot go on.

    """
    if resume is None:
        run_dir = create_run_folder(config.output_dir.absolute(), new_run_id(now()))
        remember_run(run_dir)  # before it can be killed: who goes on with it knows that it is theirs
    else:
        run_dir = resume.absolute()
    with (
        marked_alive(run_dir),
        Journal.create(run_dir, run_dir.name, config_text, created_at=now())
        if resume is None
        else Journal.open(run_dir) as journal,
        log_kept(run_dir),
        redacted_logs(),
    ):
        run = RunLog(
            journal,
            observers,
            guards=config.guards,
            now=now,
            plotter=plotter,
            planned=planned,
            total_epochs=config.total_epochs if config.phases else None,
            goes_on=resume is not None,
        )
        if resume is not None:
            for folder in (run_dir, trajectories_folder(run_dir)):
                remove_unfinished(folder)
            journal.record_config(config_text)
            write_files(journal)
            run.append(StateChanged(RunState.RUNNING, now(), None))
            remember_run(run_dir)
        with in_pass(run=run):
            yield run
