"""A run in a notebook or a script: its records, and tables of them for pandas, all read from the journal."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nat.errors import JournalError
from nat.runs.find import find_run
from nat.runs.folder import LATEST
from nat.runs.journal import reading
from nat.runs.liveness import ShownState, is_alive, shown_state
from nat.runs.recorded_config import config_of
from nat.runs.records import EpochRecord, Phase, RunInfo, RunSummary, ValidationRecord, epoch_number
from nat.runs.rollouts import RolloutRecord
from nat.wire.extras import install_hint, missing_packages

if TYPE_CHECKING:
    from pandas import DataFrame

_LONG = {"messages", "tools", "conversations", "rows"}


class Run:
    """A run on disk, whether it still trains, has ended, was killed, or was copied from elsewhere.

    Each property and method reads the journal when it is called, so that a run that trains shows what it has now.
    Epochs count from 1, as on all pages. Whatever reads raises JournalError if the journal is gone or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, name: str | Path = LATEST, root: Path | None = None) -> Self:
        """The run that `name` means: its path, its id, a beginning of it, or `latest`, as for `nat runs show`.

        It is looked for below `root`; without one, among all of the user's runs.

        Raises:
            JournalError: there is no such run, there are several, or its journal cannot be read.

        """
        run = cls(find_run(str(name), root))
        _ = run.info
        return run

    @property
    def info(self) -> RunInfo:
        """Its id, when it began and ended, the state that it recorded, and its configuration as YAML."""
        with reading(self.folder) as journal:
            return journal.info()

    @property
    def id(self) -> str:
        return self.info.run_id

    @property
    def state(self) -> ShownState:
        """Its state as `nat runs list` shows it, such as `running`, `killed` or `completed`."""
        return shown_state(self.info.state, alive=is_alive(self.folder))

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, without secrets; empty if it cannot be read."""
        return config_of(self.info.config_text)

    @property
    def summary(self) -> RunSummary | None:
        """The verdict and what the run came to; None before its end."""
        with reading(self.folder) as journal:
            return journal.find(RunSummary)

    def epochs(self) -> "DataFrame":
        """A row for each finished epoch: the fields of `training_metrics.jsonl`, and its metrics as columns."""
        with reading(self.folder) as journal:
            return _frame(
                {name: value for name, value in record if not isinstance(value, dict | list)}
                | {"epoch": epoch_number(record.epoch), **record.metrics}
                for record in journal.each(EpochRecord)
            )

    def validations(self) -> "DataFrame":
        """A row for each validation, after `epoch` epochs of training."""
        with reading(self.folder) as journal:
            return _frame({"epoch": record.epoch, **record.statistics} for record in journal.each(ValidationRecord))

    def rollouts(self, *, last: int | None = None, held_out: bool = False) -> "DataFrame":
        """A row for each rollout, with its question, the expected answer and its output, without its conversation.

        Args:
            last: Number of epochs to read, the newest ones; all by default.
            held_out: Those of the validations instead of the training; their epoch is the last one before them.

        """
        each = self.each_rollout(last=last, held_out=held_out)
        return _frame({"epoch": epoch, **record.model_dump(exclude=_LONG)} for epoch, record in each)

    def each_rollout(self, *, last: int | None = None, held_out: bool = False) -> Iterator[tuple[int, RolloutRecord]]:
        """The epoch and the whole record of each rollout, one at a time; the arguments are those of `rollouts`."""
        phase = Phase.VALIDATION if held_out else Phase.TRAIN
        with reading(self.folder) as journal:
            played = journal.played(phase)
            for epoch in played[0 if last is None else max(0, len(played) - last) :]:
                for record in journal.rollouts(phase, epoch):
                    yield epoch if held_out else epoch_number(epoch), record

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"


def _frame(rows: Iterable[dict[str, Any]]) -> "DataFrame":
    """The rows as a DataFrame.

    Raises:
        JournalError: pandas is not installed.

    """
    if missing_packages(["pandas"]):
        raise JournalError("a table needs the package pandas, which is not installed", hint=install_hint("notebook"))
    import pandas as pd

    return pd.DataFrame(list(rows))
