"""Send a run to a tracker from its journal: as it goes on, after it was killed, or years later.

`trackers/<name>.json` in the run's folder says what the tracker has, so nothing is lost and little is sent twice. The
journal is closed while the tracker works, which may take long.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.tracker import TrackerConfig
from nat.errors import JournalError, findings_of
from nat.files import remove_unfinished, write_text
from nat.registry.catalog import current_catalog
from nat.runs.folder import checked_name
from nat.runs.journal import Journal, reading
from nat.runs.plot import mean_interval
from nat.runs.recorded_config import config_of
from nat.runs.records import (
    EpochRecord,
    JobRecord,
    Phase,
    RunRecord,
    RunState,
    RunSummary,
    ValidationRecord,
    count_of,
)
from nat.runs.rollouts import RolloutRecord
from nat.runs.tracker import FOLDER, Artifact, Point, RolloutTable, TrackedRun, Tracker

AT_ONCE = 20
"""Epochs that are read before the tracker gets them."""
_CELL_CHARS = 4000
"""Of a text in a table."""
_NO_METRICS = {"epoch", "phase", "timestamp", "run_id", "metrics", "examples", "left_out", "failures", "played"}
_NO_FACTS = {"run_id", "interval", "failures", "broken_by", "shortened", "best", "causes", "phases"}


class Sent(RunRecord):
    """What a tracker has of a run."""

    tracker_id: str | None = None
    """The run's id in the tracker; None before it has begun there."""
    epochs: int = 0
    """It has all epochs before this one, with their steps and rollouts."""
    steps: int = 0
    """The number of the last optimizer step that it has."""
    validations: int = 0
    """It has all validations before this epoch."""
    ended: RunState | None = None
    """The end that it was told; None if more may follow."""


Give = Callable[[Tracker], None]


class Due(NamedTuple):
    """What a tracker gets next, and what it has then."""

    give: Give
    sent: Sent


class Sending:
    """A tracker, and what it has of a run. Use it from one thread."""

    def __init__(self, name: str, config: TrackerConfig, run_dir: Path) -> None:
        """Nothing of the tracker is called before the first `send`."""
        self.name, self.config, self.run_dir = name, config, run_dir.absolute()
        self._build = current_catalog().component_of(ComponentGroup.TRACKERS, config).build_fn
        self._tracker: Tracker | None = None
        self._kept = self.sent = Sent()

    def send(self, *, last: bool = False, progress: Callable[[], None] = lambda: None) -> Sent:
        """Give the tracker what it does not have; with `last`, the end of the run as well. Gives what it has now.

        `progress` is called after each epoch. Raises what the tracker raises; a further call then goes on.
        """
        tracker = self._tracker or self._begun()
        while batch := self._due(last=last):
            for give, sent in batch:
                give(tracker)
                self.sent = sent
                progress()
        if last:
            self._tracker = None
            self._keep()
        elif tracker.flush():
            self._keep()
        return self.sent

    def _begun(self) -> Tracker:
        self._kept = self.sent = read_sent(self.run_dir, self.name)
        tracker = asyncio.run(self._built())
        with reading(self.run_dir) as journal:
            info = journal.info()
        run_id = checked_name(info.run_id)  # names files of trackers, and the journal may be of others
        run = TrackedRun(run_id, self.run_dir, config_of(info.config_text), info.created_at, self._kept.tracker_id)
        self.sent = self._kept.model_copy(update={"tracker_id": tracker.started(run)})
        self._keep()
        self._tracker = tracker
        return tracker

    async def _built(self) -> Tracker:
        async with self._build(self.config, None) as tracker:
            built: Tracker = tracker
            return built

    def _due(self, *, last: bool) -> list[Due]:
        with reading(self.run_dir) as journal:
            return list(islice(due(journal, self.sent, self.config.rollouts, last=last), AT_ONCE))

    def _keep(self) -> None:
        if self.sent != self._kept:
            write_text(_file(self.run_dir, self.name), self.sent.model_dump_json() + "\n")
            self._kept = self.sent


@contextmanager
def only_sender(run_dir: Path) -> Iterator[None]:
    """Keep other commands from sending the run meanwhile, which would send everything twice.

    Raises:
        JournalError: another command is sending it, or `trackers` leads out of the run's folder.

    """
    import fcntl

    folder = run_dir / FOLDER
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise JournalError(f"{folder} is no folder of the run", hint="delete it to send the run again")
    folder.mkdir(exist_ok=True)
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another command is sending the run {run_dir.name}"
            raise JournalError(message, hint="wait until it has ended") from error
        remove_unfinished(folder)  # of a run that was killed after its end, with which no other command goes on
        yield
    finally:
        os.close(opened)


def read_sent(run_dir: Path, name: str) -> Sent:
    """What a tracker has of a run.

    Raises:
        JournalError: the file is damaged.

    """
    path = _file(run_dir, name)
    again = "delete it to send the run again"
    if path.exists() and not path.is_file():  # a FIFO would block
        raise JournalError(f"{path} cannot be read: it is no file", hint=again)
    try:
        return Sent.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Sent()
    except ValidationError as error:
        raise JournalError(f"{path} cannot be read: {findings_of(error)[0]}", hint=again) from error


def _file(run_dir: Path, name: str) -> Path:
    return run_dir / FOLDER / f"{name}.json"


def due(journal: Journal, sent: Sent, rows: int, *, last: bool) -> Iterator[Due]:
    """What the tracker does not have, in order; each with at most so many rows of rollouts."""
    for validation in journal.each_validation(sent.validations):
        sent = sent.model_copy(update={"validations": validation.epoch + 1, "ended": None})
        table = _table(journal, Phase.VALIDATION, validation.epoch, rows)
        yield Due(partial(_give_validation, validation, table), sent)
    for epoch in journal.each_epoch(sent.epochs):
        points, steps = list[Point](), sent.steps
        for job in journal.jobs(epoch.epoch):
            points += step_points(job, steps)
            steps = points[-1].number if points else steps
        sent = sent.model_copy(update={"epochs": epoch.epoch + 1, "steps": steps, "ended": None})
        yield Due(partial(_give_epoch, epoch, points, _table(journal, Phase.TRAIN, epoch.epoch, rows)), sent)
    if last and sent.ended != (state := journal.info().state):
        table = _table(journal, Phase.TRAIN, sent.epochs, rows)  # of an epoch that was not finished
        end = partial(_give_end, journal.summary(), table, list(_artifacts(journal)), state)
        yield Due(end, sent.model_copy(update={"ended": state}))


def _give_validation(record: ValidationRecord, table: RolloutTable | None, tracker: Tracker) -> None:
    tracker.validation(Point(record.epoch, validation_metrics(record), record.timestamp))
    if table is not None:
        tracker.rollouts(table)


def _give_epoch(record: EpochRecord, steps: list[Point], table: RolloutTable | None, tracker: Tracker) -> None:
    for point in steps:
        tracker.step(point)
    if table is not None:
        tracker.rollouts(table)
    tracker.epoch(Point(record.epoch, epoch_metrics(record), record.timestamp))


def _give_end(
    summary: RunSummary | None,
    table: RolloutTable | None,
    artifacts: list[Artifact],
    state: RunState,
    tracker: Tracker,
) -> None:
    if table is not None:
        tracker.rollouts(table)
    for artifact in artifacts:
        tracker.artifact(artifact)
    if summary is not None:
        tracker.verdict(verdict_facts(summary))
    tracker.ended(state)


def epoch_metrics(record: EpochRecord) -> dict[str, float]:
    """The numbers of an epoch: the fields of the record, its metrics, and the calls and tokens of each LLM.

    Trackers make a group of what has a common prefix, and some a group for each name without one.
    """
    fields = record.model_dump(exclude=_NO_METRICS | {"avg_reward"})
    grouped = {f"epoch/{name}": value for name, value in fields.items()}
    calls = {
        f"cost/{purpose}/{name}/{field}": count
        for purpose, used in record.usage.items()
        for name, each in used.items()
        for field, count in each
    }
    return _finite({"avg_reward": record.avg_reward} | grouped | record.metrics | calls)


def step_points(job: JobRecord, after: int = 0) -> list[Point]:
    """The optimizer steps of a job, numbered through the run: as the backend counts them, and all after `after`.

    A job of several models has the steps of one after the other, under `<role>/<metric>`.
    """
    at = job.finished_at or job.submitted_at
    steps = [step for step in job.steps if 0 not in (value for name, value in step.items() if _is_norm(name))]
    first = max(after, count_of(job.metrics, "policy_step", len(steps)) - len(steps))
    return [
        Point(first + place, {f"step/{name}": value for name, value in _finite(step).items()}, at)
        for place, step in enumerate(steps, start=1)
    ]


def _is_norm(name: str) -> bool:
    """Zero where a step changed no weight."""
    return name.rpartition("/")[2] == "grad_norm"


def validation_metrics(record: ValidationRecord) -> dict[str, float]:
    """The statistics of a validation, and the ends of the mean's 95 % interval."""
    found = dict(record.statistics)
    if rewards := record.rewards:
        found["interval_low"], _, found["interval_high"] = mean_interval(rewards)
    return {f"val/{name}": value for name, value in _finite(found).items()}


def verdict_facts(summary: RunSummary) -> dict[str, str | float]:
    """The summary's numbers and words that are not None, under `verdict/`."""
    found = summary.model_dump(mode="json", exclude=_NO_FACTS)
    if summary.interval is not None:
        found["interval_low"], found["interval_high"] = summary.interval
    if summary.best is not None:
        found |= {"best_epoch": summary.best.epoch, "best_score": summary.best.score}
    found["causes"] = "; ".join(map(str, summary.causes)) or None
    return {f"verdict/{name}": value for name, value in found.items() if isinstance(value, str | float | int)}


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(v) for name, v in values.items() if isinstance(v, float | int) and isfinite(v)}


def _table(journal: Journal, phase: Phase, epoch: int, rows: int) -> RolloutTable | None:
    """The first rollouts; None if there is none."""
    found = [_row(record) for record in islice(journal.rollouts(phase, epoch), rows)] if rows else []
    name = "rollouts" if phase is Phase.TRAIN else "held_out_rollouts"
    columns = [*found[0]] if found else []
    return RolloutTable(name, epoch, columns, [list(row.values()) for row in found]) if found else None


def _row(record: RolloutRecord) -> dict[str, str | float | int | None]:
    said = (f"{each.get('role')}: {each.get('content') or each.get('tool_calls')}" for each in record.messages)
    return {
        "example_id": record.example_id,
        "generation": record.generation,
        "reward": record.reward,
        "conversation": _cell("\n".join(said)),
        "output": _cell(record.output),
        "left_out": None if record.left_out is None else str(record.left_out),
        "error": _cell(record.error),
        "completion_tokens": record.completion_tokens,
        "seconds": round(record.seconds, 3),
    }


def _cell(text: str | None) -> str | None:
    return text if text is None or len(text) <= _CELL_CHARS else f"{text[:_CELL_CHARS]} …"


def _artifacts(journal: Journal) -> Iterator[Artifact]:
    """The plot and the models that the run has kept, where they exist; a file outside the run's folder is not its."""
    summary, best = journal.summary(), journal.best()
    named: dict[str, str | None] = {"checkpoint": None if best is None else best.checkpoint}
    if summary is not None:
        named |= {"plot": summary.plot, "model": summary.model, "best_model": summary.best_model}
    for name, place in named.items():
        if place is None or not (path := journal.run_dir.absolute() / place).exists():
            continue
        if path.is_dir() or path.resolve().is_relative_to(journal.run_dir.resolve()):  # trackers upload files
            yield Artifact(name, path)
