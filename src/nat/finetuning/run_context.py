"""The current run: its id, its journal, its progress display and its clock.

The runtime opens a run around a trainer. The constructors of the guide have no parameter for it, so it is kept in a
context variable; a trainer that is used without the runtime opens a run itself.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path

from nat.data_models.finetuning import FinetuneConfig
from nat.data_models.rollout_failure import FailureCount
from nat.errors import describe_error
from nat.eval.comparison import FirstAnswers
from nat.eval.failures import FAILURES_NAME
from nat.files import remove_unfinished
from nat.finetuning.events import Event, Observer, Said, StateChanged, Warned
from nat.finetuning.run_log import RunLog
from nat.rollout.keeping import Keeper
from nat.runs.find import remember_run
from nat.runs.folder import create_run_folder, new_run_id, trajectories_folder, write_files
from nat.runs.journal import Journal
from nat.runs.liveness import marked_alive
from nat.runs.log_file import log_kept
from nat.runs.plot import PLOT_NAME, draw_run
from nat.runs.records import (
    EpochRecord,
    Phase,
    RunState,
    RunSummary,
    TrainingPhase,
    ValidationRecord,
    after_epoch,
)
from nat.secrets import redacted_logs

logger = logging.getLogger(__name__)


def utc_now() -> datetime:
    """The default clock of a run."""
    return datetime.now(UTC)


Plotter = Callable[[Path], Awaitable[str | None]]
"""Draws the plot of a run's folder; returns the error's text, or None."""


@dataclass(frozen=True)
class RunContext:
    """One finetuning run."""

    run_id: str
    log: RunLog
    now: Callable[[], datetime] = utc_now
    plotter: Plotter = draw_run
    planned: Mapping[Phase, int] = field(default_factory=dict)
    """Number of rollouts of an epoch and of a validation, if known beforehand."""
    goes_on: bool = False
    """Whether an earlier process has begun it."""
    explained: set[str] = field(default_factory=set)
    """Causes of a flat reward that the run has warned of."""
    phase: TrainingPhase | None = None
    """The phase of training; None in a run without phases."""
    total_epochs: int | None = None
    """Planned epochs of all phases; None without phases."""

    @property
    def journal(self) -> Journal:
        """What the log has kept."""
        return self.log.journal

    @property
    def first_epoch(self) -> int:
        """The first epoch of the phase, since epochs are numbered through."""
        return 0 if self.phase is None else self.phase.first_epoch

    def epochs(self) -> list[EpochRecord]:
        """The finished epochs of the phase."""
        return [epoch for epoch in self.journal.each_epoch() if epoch.epoch >= self.first_epoch]

    @property
    def unplayed_epochs(self) -> int:
        """Epochs of earlier phases that trained on a file."""
        return sum(not each.played for each in islice(self.journal.each_epoch(), self.first_epoch))

    def begin_phase(self) -> None:
        """Record and report the phase, if there is one."""
        if self.phase is not None:
            self.append(self.phase)
            logger.info("%s", self.phase)

    first_answers: FirstAnswers = field(default_factory=dict)
    """For evaluators that compare: the held-out answers from before training."""

    def keeper(self, phase: Phase, epoch: int) -> Keeper:
        """Keeps what these rollouts finish, and knows what an earlier process has finished.

        Failures count as finished once the epoch was submitted: the job has trained without them.
        """
        journal = self.journal
        submitted = phase is Phase.TRAIN and bool(journal.jobs(epoch))
        return Keeper(journal.kept(phase, epoch), partial(journal.keep, phase, epoch), with_failures=submitted)

    def num_rollouts(self, phase: Phase) -> int | None:
        """Rollouts of an epoch or a validation; None if the number is not known."""
        return self.planned.get(phase)

    def append(self, event: Event) -> None:
        """Append an event to the run's log."""
        self.log.append(event)

    def say(self, text: str) -> None:
        """Show a message to those who watch the run."""
        self.append(Said(text))

    def warn(self, text: str) -> None:
        """Log a message, and show it."""
        logger.warning("%s", text)
        self.append(Warned(text))

    def end_early(self, why: str) -> None:
        """Report and record why the run ends before its last epoch although nothing went wrong."""
        logger.info("%s", why)
        self.say(why)
        self.append(StateChanged(RunState.RUNNING, self.now(), why))

    def warn_of_failures(self, failures: Sequence[FailureCount], where: str, num_rollouts: int) -> None:
        """Warn of the failures, if there are any, and name the file with their tracebacks."""
        if failures:
            failed, causes = sum(each.count for each in failures), "; ".join(map(str, failures))
            place = self.journal.run_dir / FAILURES_NAME
            logger.warning("%s: %d of %d rollouts failed: %s (see %s)", where, failed, num_rollouts, causes, place)

    def record_validation(self, record: ValidationRecord) -> None:
        """Record and report a validation's scores and failures."""
        average, count, when = record.avg_reward, record.num_examples, after_epoch(record.epoch)
        logger.info("Validation %s - Avg Reward: %.4f over %d examples", when, average, count)
        self.warn_of_failures(record.failures, f"Held-out {when}", record.num_rollouts)
        self.append(record)

    async def record_summary(self, summary: RunSummary) -> RunSummary:
        """Record the summary, which the plot shows, and then that there is a plot; returns the last record."""
        self.append(summary)
        if await self.draw():
            summary = summary.model_copy(update={"plot": PLOT_NAME})
            self.append(summary)
        return summary

    async def draw(self) -> bool:
        """Draw the plot in a process of its own; a failure is logged and does not end the run."""
        run_dir = self.journal.run_dir
        try:
            failure = await self.plotter(run_dir)
        except OSError as error:  # no further process can be started
            failure = describe_error(error)
        if failure is not None:
            text = "%s could not be drawn; journal and metrics are complete: %s"
            logger.warning(text, run_dir / PLOT_NAME, failure)
        return failure is None

    def end(self, state: RunState, message: str | None = None) -> None:
        """Record the final state and why, by default as `end_early` recorded, and write the files a last time."""
        self.append(StateChanged(state, self.now(), message or self.journal.info().message))

    def write_files(self) -> None:
        """Update the files of the run's folder from the journal."""
        write_files(self.journal)


_current: ContextVar[RunContext | None] = ContextVar("finetuning_run", default=None)


current_run = _current.get
"""The current run; None outside of a run."""


@contextmanager
def in_run(run: RunContext) -> Iterator[RunContext]:
    """Make `run` the current run inside the block."""
    token = _current.set(run)
    try:
        yield run
    finally:
        with suppress(ValueError):  # it ends in another context: of a trainer that nobody cleaned up
            _current.reset(token)


@contextmanager
def open_run(
    config: FinetuneConfig,
    config_text: str,
    *,
    resume: Path | None = None,
    planned: Mapping[Phase, int] | None = None,
    observers: Sequence[Observer] = (),
    now: Callable[[], datetime] = utc_now,
    plotter: Plotter = draw_run,
) -> Iterator[RunContext]:
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
        in_run(
            RunContext(
                journal.info().run_id,  # jobs are found by it, wherever the folder was copied to
                RunLog(journal, observers, guards=config.guards),
                now,
                plotter,
                planned or {},
                goes_on=resume is not None,
            )
        ) as run,
    ):
        if resume is not None:
            for folder in (run_dir, trajectories_folder(run_dir)):
                remove_unfinished(folder)
            journal.record_config(config_text)
            run.write_files()
            run.append(StateChanged(RunState.RUNNING, now(), None))
            remember_run(run_dir)
        yield run


class Stopwatch:
    """Adds up seconds by stage; the clock must be monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, already: float = 0.0) -> None:
        self._clock = clock
        self._started = clock() - already
        self.stages: dict[str, float] = {}

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        started = self._clock()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + self._clock() - started

    @property
    def total(self) -> float:
        """Seconds since the watch was created, and those that it began with."""
        return self._clock() - self._started
