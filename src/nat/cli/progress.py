"""A run's progress for people: a live view on a terminal, else one line per event."""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from nat.cli import console_log
from nat.cli.steps import QUIET_SECONDS, Clock, StepDisplay
from nat.data_models.rollout_failure import FailureCount, one_line, total
from nat.eval.failures import FAILURES_NAME
from nat.finetuning.metrics import STALE_ROWS
from nat.finetuning.progress import RunProgress
from nat.reports.epoch_table import epoch_table
from nat.runs.plot import duration
from nat.runs.records import (
    EpochRecord,
    JobRecord,
    Phase,
    TrainingPhase,
    ValidationRecord,
    after_epoch,
    epoch_number,
)
from nat.secrets import redact

_ROWS_SHOWN = 12
_WIDE = 90
"""Columns of a terminal from which the table of epochs has two blanks between its columns."""


class _Display(RunProgress):
    """What both displays have: they end with the block, and leave warnings to the log."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def phase_started(self, phase: TrainingPhase) -> None:
        self.message(str(phase))

    def warning(self, text: str) -> None:
        """The log shows it."""


class LineProgress(_Display):
    """A line for each step, epoch and validation, and after half a minute without one."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        super().__init__()
        self._lines = StepDisplay(console, clock=clock)
        self._clock = clock
        self._num_epochs = 0
        self._place = ""
        self._began: tuple[int, float] | None = None
        """The first epoch that this process plays from its beginning, and when its rollouts began."""
        self._begun_earlier = False

    def __enter__(self) -> Self:
        self._open.enter_context(self._lines.checked())
        return self

    def step_started(self, what: str) -> None:
        self._lines.begin(what)

    def run_started(self, run_id: str, run_dir: Path, num_epochs: int) -> None:
        self._num_epochs, self._begun_earlier = num_epochs, self.goes_on
        epochs = "1 epoch" if num_epochs == 1 else f"{num_epochs} epochs"
        self._lines.line(f"run {run_id}: {epochs}, output in {run_dir}")

    def epoch_started(self, epoch: int, num_epochs: int) -> None:
        if self._began is None and not self._begun_earlier:
            self._began = (epoch, self._clock())
        self._begun_earlier = False
        self._place = f"epoch {epoch_number(epoch)}/{self._num_epochs}"

    def rollouts_started(self, phase: Phase, total: int | None) -> None:
        what = "held-out rollouts" if phase is Phase.VALIDATION else f"{self._place}  rollouts"
        self._lines.begin(what, total, after=QUIET_SECONDS)

    def rollout_done(self, error: str | None) -> None:
        self._lines.advance(failed=error is not None)

    def training_started(self, num_groups: int, num_trajectories: int) -> None:
        what = f"{self._place}  training on {num_trajectories} rollouts in {num_groups} groups"
        self._lines.begin(what, after=QUIET_SECONDS)

    def epoch_finished(self, record: EpochRecord) -> None:
        number, stale = epoch_number(record.epoch), record.metrics.get(STALE_ROWS, 0.0)
        groups = f"groups {record.trained_groups}/{record.num_groups}  rollouts {record.num_rollouts}"
        trained = (
            f"reward {record.result}  {groups}" if record.played else f"{record.result}  rows {record.num_trajectories}"
        )
        self._lines.line(
            f"epoch {number}/{self._num_epochs}  {trained}{_failed(record.failures)}  "
            f"{f'stale rows {stale:.0%}  ' if stale else ''}{record.seconds:.1f} s{self._left(number)}"
        )

    def validation_finished(self, record: ValidationRecord) -> None:
        failed = _failed(record.failures)
        score = "no score" if record.avg_reward is None else f"{record.avg_reward:.3f}"
        self._lines.line(f"held-out {after_epoch(record.epoch)}: {score} on {record.num_examples} examples{failed}")

    def message(self, text: str) -> None:
        self._lines.line(text)

    def _left(self, number: int) -> str:
        """How long the other epochs take, validations between them included; nothing before one was played whole."""
        if self._began is None or number >= self._num_epochs:
            return ""
        first, at = self._began
        left = (self._clock() - at) / (number - first) * (self._num_epochs - number)
        return f"  about {duration(max(1.0, left))} left"


class LiveProgress(_Display):
    """A live view: the current stage, and a table of the last epochs."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._epochs = self._bars.add_task("epochs", total=None)
        self._now = self._bars.add_task("rollouts", total=None)
        self._records: deque[EpochRecord] = deque(maxlen=_ROWS_SHOWN)
        self._held_out: list[ValidationRecord] = []
        self._causes: list[FailureCount] = []
        self._failed: list[str] = []
        self._training = ""
        """What is being trained, also while the next rollouts are played, or another step."""
        self._failures_file: Path | None = None
        self._title = Text("", style="dim")
        self._live = Live(get_renderable=self._view, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._open.enter_context(self._live)
        self._open.enter_context(console_log.shown_by(self.message))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._training = ""
        self._live.transient = self._failures_file is None  # if no run began, the empty table is removed
        super().__exit__(exc_type, exc, traceback)

    def step_started(self, what: str) -> None:
        self._training = f"{what} …"
        self._live.refresh()

    def run_started(self, run_id: str, run_dir: Path, num_epochs: int) -> None:
        self._title = Text.assemble(("nat finetune ", "bold"), f"{run_id}  →  {run_dir}")
        self._failures_file = run_dir / FAILURES_NAME
        self._training = ""
        self._bars.update(self._epochs, total=num_epochs)

    def epoch_started(self, epoch: int, num_epochs: int) -> None:
        self._bars.update(self._epochs, completed=epoch, total=num_epochs)

    def rollouts_started(self, phase: Phase, total: int | None) -> None:
        self._failed = []
        name = "held-out" if phase is Phase.VALIDATION else "rollouts"
        self._bars.reset(self._now, total=total, description=name)

    def rollout_done(self, error: str | None) -> None:
        self._failed += [] if error is None else [error]
        self._bars.update(self._now, advance=1)

    def training_started(self, num_groups: int, num_trajectories: int) -> None:
        self._training = f"training on {num_trajectories} rollouts in {num_groups} groups"
        self._live.refresh()

    def training_finished(self, job: JobRecord) -> None:
        self._training = ""

    def epoch_finished(self, record: EpochRecord) -> None:
        self._records.append(record)
        self._causes = total([self._causes, record.failures])
        self._bars.update(self._epochs, completed=epoch_number(record.epoch))

    def validation_finished(self, record: ValidationRecord) -> None:
        self._held_out.append(record)
        self._causes = total([self._causes, record.failures])

    def message(self, text: str) -> None:
        self._console.print(redact(text), highlight=False, markup=False)  # before lines are wrapped

    def _view(self) -> Group:
        """The note has its own line, because a long error beside the bars would leave no room for them."""
        lines = [Text(f"failed     {each}", style="red") for each in self._causes]
        lines += [Text(f"           tracebacks: {self._failures_file}", style="dim")] if lines else []
        failed = f"{len(self._failed)} failed: {one_line(self._failed[0])}" if self._failed else ""
        note = "  ".join(filter(None, (self._training, failed)))
        return Group(self._title, self._table(), *lines, self._bars, Text(note, no_wrap=True, overflow="ellipsis"))

    def _table(self) -> Table:
        drawn = epoch_table(list(self._records), list(self._held_out))  # the view is also drawn in a thread
        between = 2 if self._console.width > _WIDE else 1
        table = Table(box=None, padding=(0, between, 0, 0), header_style="dim")
        for name in drawn.header:
            table.add_column(name, justify="right")
        for row in drawn.rows:
            table.add_row(*row)
        return table


def console_progress(console: Console) -> LineProgress | LiveProgress:
    """The live view on a terminal, else lines; likewise with the log of modules on stderr, which breaks the view."""
    if console.is_terminal and not console_log.is_chatty():
        return LiveProgress(console)
    return LineProgress(console)


def _failed(failures: Sequence[FailureCount]) -> str:
    failed = sum(each.count for each in failures)
    return f" ({failed} failed)" if failed else ""
