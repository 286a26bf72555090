"""The log of a run: the journal keeps each event, its state is a fold of them, and then the observers hear of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.catalogue import kept
from nat.finetuning.events import Event, Observer, RolloutsPlayed, StateChanged
from nat.finetuning.sampling import sampling_notes
from nat.finetuning.staleness import PolicyVersions
from nat.runs.folder import append_metrics, files_due, write_files, write_rollouts
from nat.runs.journal import Journal
from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    JobRecord,
    Phase,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
)
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import JobStatus


@dataclass(frozen=True)
class TrainingState:
    """What a trainer knows of the phase that it trains; a run without phases is one."""

    kept: Sequence[EpochRecord] = ()
    """The epochs that guards and alarms read."""
    versions: PolicyVersions = field(default_factory=PolicyVersions)
    curriculum: Mapping[str, Any] | None = None
    """Its state after the last epoch; None without a curriculum."""
    noted: frozenset[str] = frozenset()
    """The notes about sampling that the rollouts of the run have given."""

    def after(self, event: Event, guards: GuardsConfig) -> "TrainingState":
        """The state after one more event."""
        match event:
            case TrainingPhase():
                return TrainingState(noted=self.noted)
            case RolloutsPlayed(phase=Phase.TRAIN, records=records):
                noted = self.noted | sampling_notes(records).keys()
                return replace(self, versions=self.versions_before(records), noted=noted)
            case JobRecord(status=JobStatus.COMPLETED):
                return replace(self, versions=self.versions.updated(event.policy_version))
            case EpochRecord():
                return replace(self, kept=kept([*self.kept, event], guards), curriculum=event.curriculum_state)
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
    """The events of a run, and the state that they have led to."""

    def __init__(
        self, journal: Journal, observers: Sequence[Observer] = (), *, guards: GuardsConfig | None = None
    ) -> None:
        """Begin with an empty journal, or go on from what it has."""
        self.journal = journal
        self.guards = guards or GuardsConfig()
        """They decide which epochs the state keeps."""
        self.state = state_of(journal, self.guards, goes_on=True)
        self._observers = (self._write_files, *observers)

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
