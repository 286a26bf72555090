"""The run that is going on: its id, its journal, and whom to tell.

The runtime opens a scope around a trainer. The guide's constructors leave no room for it, so it travels in a
context variable; a trainer that is used without the runtime opens a scope of its own.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from nat.data_models.finetuning import FinetuneConfig
from nat.data_models.rollout_failure import FailureCount
from nat.errors import describe_error
from nat.eval.failures import FAILURES_NAME
from nat.finetuning.progress import NullProgress, Progress
from nat.runs.epochs import when
from nat.runs.files import write_files
from nat.runs.folder import create_run_folder, new_run_id
from nat.runs.journal import Journal
from nat.runs.plot import PLOT_NAME
from nat.runs.plot_process import draw_run
from nat.runs.records import Phase, RunState, ValidationRecord
from nat.secrets import redacted_logs

logger = logging.getLogger(__name__)


def utc_now() -> datetime:
    """The clock of a run, if no other is passed in."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class RunScope:
    """One finetuning run."""

    run_id: str
    journal: Journal
    progress: Progress = field(default_factory=NullProgress)
    now: Callable[[], datetime] = utc_now
    planned: Mapping[Phase, int] = field(default_factory=dict)
    """Rollouts of an epoch and of a validation, where they are known beforehand."""

    def num_rollouts(self, phase: Phase) -> int | None:
        """How many rollouts an epoch or a validation begins, as far as the run has been told."""
        return self.planned.get(phase)

    def warn(self, text: str) -> None:
        """Log it, and show it in the progress display."""
        logger.warning("%s", text)
        self.progress.message(text)

    def warn_of(self, failures: Sequence[FailureCount], where: str, num_rollouts: int) -> None:
        """Log what failed, if something did, and where its traceback is."""
        if failures:
            failed, causes = sum(each.count for each in failures), "; ".join(map(str, failures))
            place = self.journal.run_dir / FAILURES_NAME
            logger.warning("%s: %d of %d rollouts failed: %s (see %s)", where, failed, num_rollouts, causes, place)

    def validation_finished(self, record: ValidationRecord) -> None:
        """Report the scores and the failures."""
        self.warn_of(record.failures, f"Held-out {when(record.epoch)}", record.num_rollouts)
        self.progress.validation_finished(record)

    async def draw(self) -> bool:
        """Draw the plot beside the event loop; a picture that fails must not end a run."""
        run_dir = self.journal.run_dir
        try:
            failure = await draw_run(run_dir)
        except OSError as error:  # no further process can be started
            failure = describe_error(error)
        if failure is not None:
            text = "%s could not be drawn; the journal and the metrics are whole: %s"
            logger.warning(text, run_dir / PLOT_NAME, failure)
        return failure is None

    def end(self, state: RunState, message: str | None = None) -> None:
        """The run's final state, and the files as they will stay."""
        self.journal.set_state(state, at=self.now(), message=message)
        self.write_files()

    def write_files(self) -> None:
        """Bring the files that people read up to date with the journal."""
        write_files(self.journal)


_current: ContextVar[RunScope | None] = ContextVar("finetuning_run", default=None)


def current_scope() -> RunScope | None:
    """None outside of a run."""
    return _current.get()


@contextmanager
def in_scope(scope: RunScope) -> Iterator[RunScope]:
    """Make it the current run for what is called inside."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)


@contextmanager
def opened_scope(
    config: FinetuneConfig,
    config_text: str,
    *,
    planned: Mapping[Phase, int] | None = None,
    progress: Progress | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Iterator[RunScope]:
    """A new run: its folder under `output_dir` and its journal, closed at the end."""
    run_id = new_run_id(now(), uuid4().hex[:4])
    run_dir = create_run_folder(config.output_dir, run_id)
    with (
        Journal.create(run_dir, run_id, config_text, created_at=now()) as journal,
        redacted_logs(),
        in_scope(RunScope(run_id, journal, progress or NullProgress(), now, planned or {})) as scope,
    ):
        yield scope
