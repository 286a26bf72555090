"""A run in a notebook or a script: its records, and tables of them for pandas, all read from the journal."""

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nat.runs.find import find_run
from nat.runs.folder import LATEST
from nat.runs.frames import (
    CALL_COLUMNS,
    EPOCH_COLUMNS,
    ROLLOUT_COLUMNS,
    VALIDATION_COLUMNS,
    call_rows,
    epoch_row,
    frame,
    rollout_row,
    validation_row,
)
from nat.runs.journal import Journal, reading
from nat.runs.liveness import ShownState, is_alive, shown_state
from nat.runs.recorded_config import config_of
from nat.runs.records import Phase, RunInfo, RunSummary, played_epochs
from nat.runs.rollouts import RolloutRecord

if TYPE_CHECKING:
    from pandas import DataFrame


class Run:
    """A run on disk, whether it still trains, has ended, was killed, or was copied from elsewhere.

    Each property and method reads the journal when it is called, so that a run that trains shows what it has now.
    Epochs count from 0, as in the run's files. Whatever reads raises JournalError if the journal is gone or damaged.
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
        return self._state(self.info)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, without secrets; empty if it cannot be read."""
        return config_of(self.info.config_text)

    @property
    def summary(self) -> RunSummary | None:
        """The verdict and what the run came to; None before its end."""
        with reading(self.folder) as journal:
            return journal.summary()

    def epochs(self) -> "DataFrame":
        """A row for each finished epoch: the fields of `training_metrics.jsonl`, and its metrics as columns."""
        with reading(self.folder) as journal:
            return frame(map(epoch_row, journal.each_epoch()), EPOCH_COLUMNS)

    def validations(self) -> "DataFrame":
        """A row for each validation, after `epoch` epochs of training, with the 95 % interval of its mean."""
        with reading(self.folder) as journal:
            return frame(map(validation_row, journal.each_validation()), VALIDATION_COLUMNS)

    def rollouts(self, *, last: int | None = None, held_out: bool = False) -> "DataFrame":
        """A row for each rollout, without its conversation.

        Args:
            last: Number of epochs to read, the newest ones; all by default.
            held_out: Those of the validations instead of the training.

        """
        return frame((rollout_row(*each) for each in self.each_rollout(last=last, held_out=held_out)), ROLLOUT_COLUMNS)

    def calls(self, *, last: int | None = None, held_out: bool = False) -> "DataFrame":
        """A row for each answer that was sampled in the recorded conversations, with its text and tokens.

        `mean_logprob` is in nats per token. The arguments are those of `rollouts`.
        """
        each_rollout = self.each_rollout(last=last, held_out=held_out)
        return frame((row for each in each_rollout for row in call_rows(*each)), CALL_COLUMNS)

    def each_rollout(self, *, last: int | None = None, held_out: bool = False) -> Iterator[tuple[int, RolloutRecord]]:
        """The epoch and the whole record of each rollout, one at a time; the arguments are those of `rollouts`."""
        phase = Phase.VALIDATION if held_out else Phase.TRAIN
        with reading(self.folder) as journal:
            played = journal.played(phase)
            for epoch in played[0 if last is None else max(0, len(played) - last) :]:
                for record in journal.rollouts(phase, epoch):
                    yield epoch, record

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a small table with the rewards and the verdict."""
        with reading(self.folder) as journal:
            return _table(self._facts(journal))

    def _facts(self, journal: Journal) -> Iterator[tuple[str, str]]:
        info, epochs, summary = journal.info(), journal.epochs(), journal.summary()
        yield "Run", info.run_id
        yield "State", f"{self._state(info)}: {info.message}" if info.message else self._state(info)
        yield "Epochs", str(len(epochs))
        if epochs and not any(epoch.relative for epoch in epochs):
            yield "Reward in training", _change([epoch.avg_reward for epoch in played_epochs(epochs)])
        if scores := [each.avg_reward for each in journal.each_validation() if each.avg_reward is not None]:
            yield "Held-out score", _change(scores)
        if summary is not None and summary.verdict is not None and summary.interval is not None:
            low, high = summary.interval
            seen = f"{summary.before:.3f} → {summary.after:.3f} on the same {summary.num_examples} examples"
            yield "Verdict", f"{summary.verdict}: {seen}, 95 % interval of the change {low:+.3f} to {high:+.3f}"

    def _state(self, info: RunInfo) -> ShownState:
        return shown_state(info.state, alive=is_alive(self.folder))


def _change(values: list[float]) -> str:
    return f"{values[0]:.3f}" if len(values) == 1 else f"{values[0]:.3f} → {values[-1]:.3f}"


def _table(facts: Iterable[tuple[str, str]]) -> str:
    """A table in HTML; what a model or an agent wrote is text in it, and reverses no text around it."""
    rows = (f"<tr><th>{escape(name)}</th><td><bdi>{escape(text)}</bdi></td></tr>" for name, text in facts)
    return f"<table>{''.join(rows)}</table>"
