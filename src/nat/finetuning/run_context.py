"""Open a run, and find the current one.

The runtime opens a run around a trainer. The constructors of the guide have no parameter for it, so it travels with the
current pass; a trainer that is used without the runtime opens a run itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from nat.data_models.finetuning import FinetuneConfig
from nat.files import remove_unfinished
from nat.finetuning.events import Observer, StateChanged
from nat.finetuning.run_log import Plotter, RunLog, utc_now
from nat.rollout.session import current_pass, in_pass
from nat.runs.find import remember_run
from nat.runs.folder import create_run_folder, new_run_id, trajectories_folder, write_files
from nat.runs.journal import Journal
from nat.runs.liveness import marked_alive
from nat.runs.log_file import log_kept
from nat.runs.plot import draw_run
from nat.runs.records import Phase, RunState
from nat.secrets import redacted_logs


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
