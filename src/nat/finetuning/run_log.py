"""The log of a run: the journal keeps each event, and then its observers hear of it."""

from collections.abc import Sequence

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.events import Event, Observer, RolloutsPlayed, StateChanged
from nat.finetuning.training_state import state_to_go_on_from
from nat.runs.folder import append_metrics, files_due, write_files, write_rollouts
from nat.runs.journal import Journal
from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    JobRecord,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
)


class RunLog:
    """The events of a run, and the state that they have led to."""

    def __init__(
        self, journal: Journal, observers: Sequence[Observer] = (), *, guards: GuardsConfig | None = None
    ) -> None:
        """Begin with an empty journal, or go on from what it has."""
        self.journal = journal
        self.guards = guards or GuardsConfig()
        """They decide which epochs the state keeps."""
        self.state = state_to_go_on_from(journal, self.guards)
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
