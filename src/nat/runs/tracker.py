"""Trackers: what W&B, MLflow and others are given of a run, and how it is sent to them.

All that they get is a view of the journal, so it holds no secrets, and can be sent again later: after the run was
killed, or years after. The journal is closed while a tracker works, which may take long.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.score import interval
from nat.data_models.tracker import TrackerConfig
from nat.registry.catalog import current_catalog
from nat.runs.journal import Journal, reading
from nat.runs.recorded_config import config_of, leaves
from nat.runs.records import (
    BestEpoch,
    EpochRecord,
    JobRecord,
    Phase,
    RunState,
    RunSummary,
    ValidationRecord,
    count_of,
    score_range,
)
from nat.runs.rollouts import RolloutRecord
from nat.wire.extras import install_hint, missing_packages

FOLDER = "trackers"
"""Folder in the run's folder, for what trackers write themselves."""
_CELL_CHARS = 4000
"""Of a text in a table."""
Cell = str | float | int | None


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker is to show."""

    run_id: str
    run_dir: Path
    """Absolute."""
    config: Mapping[str, Any]
    """The resolved configuration, without secrets."""

    @property
    def folder(self) -> Path:
        """For files of the tracker's own."""
        folder = self.run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        return folder

    def settings(self) -> dict[str, Any]:
        """Each single setting by its dotted key."""
        return leaves(self.config)


class TrackerSession(Protocol):
    """Shows a run elsewhere, under the run's id; a tracker registers a function `open(run, config)` that gives one.

    It is called from one thread of its own, and may block and raise. A run that goes on, or is sent later, opens a
    session again and gives everything again: equal steps replace each other.
    """

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Numbers of an epoch or a validation, by the epoch; `step/…` are of an optimizer step, by its number."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        """Some rollouts of an epoch or a validation: `rollouts` or `held_out_rollouts`."""

    def text(self, name: str, value: str | float) -> None:
        """One fact of the run: `verdict/…`, or the path of the plot or of a model, `artifact/…`."""

    def finish(self, state: RunState) -> None:
        """Store everything; nothing follows. `running` means that the run was killed."""


def is_of_steps(metrics: Mapping[str, float]) -> bool:
    """Whether these numbers are of an optimizer step."""
    return all(name.startswith("step/") for name in metrics)


def tracker_findings(trackers: Mapping[str, TrackerConfig]) -> list[str]:
    """Trackers whose packages are not installed."""
    findings = []
    for name, config in trackers.items():
        if missing := missing_packages(config.packages):
            hint = f"pip install {' '.join(missing)}" if config.extra is None else install_hint(config.extra)
            findings.append(f"finetuning.trackers.{name}: {' and '.join(missing)} is not installed: {hint}")
    return findings


class Sending:
    """A tracker, and the epochs of a run that it was given. Use it from one thread."""

    def __init__(self, name: str, config: TrackerConfig, run_dir: Path) -> None:
        """Nothing of the tracker is called before the first `send`."""
        self.name, self._config, self._run_dir = name, config, run_dir.absolute()
        self._session: TrackerSession | None = None
        self.epochs = self._steps = 0

    def send(self, *, last: bool = False) -> None:
        """Give the tracker the epochs that it does not have; with `last`, the end of the run as well.

        Raises what the tracker raises; a further call opens it again, and goes on.
        """
        session, self._session = self._session or asyncio.run(self._opened()), None
        while True:
            with reading(self._run_dir) as journal:
                record, state = journal.find(EpochRecord, self.epochs), journal.info().state
                if record is None and not last:
                    self._session = session
                    return
                calls, steps = self._calls(session, journal, record)
            for call in calls:
                call()
            if record is None:
                session.finish(state)
                return
            self.epochs, self._steps = self.epochs + 1, steps

    async def _opened(self) -> TrackerSession:
        with reading(self._run_dir) as journal:
            info = journal.info()
        run = TrackedRun(info.run_id, self._run_dir, config_of(info.config_text))
        build = current_catalog().component_of(ComponentGroup.TRACKERS, self._config).build_fn
        async with build(self._config, None) as opener:
            session: TrackerSession = opener(run)
        return session

    def _calls(
        self, session: TrackerSession, journal: Journal, record: EpochRecord | None
    ) -> tuple[list[Callable[[], None]], int]:
        """An epoch with the validations before it, or all that follows the last one; and the steps up to its end."""
        calls: list[Callable[[], None]] = []
        steps, most = self._steps, self._config.rollouts

        def add_rollouts(phase: Phase, name: str, epoch: int) -> None:
            if rows := [_row(each) for each in islice(journal.rollouts(phase, epoch), most)]:
                calls.append(partial(session.table, name, [*rows[0]], [[*row.values()] for row in rows], epoch))

        for held_out in journal.each(ValidationRecord, self.epochs, None if record is None else record.epoch + 1):
            calls.append(partial(session.log, validation_metrics(held_out), held_out.epoch))
            add_rollouts(Phase.VALIDATION, "held_out_rollouts", held_out.epoch)
        add_rollouts(Phase.TRAIN, "rollouts", self.epochs)  # at the end, those of an epoch that was not finished
        if record is None:
            return [*calls, *(partial(session.text, name, value) for name, value in _facts(journal))], steps
        for job in journal.jobs(record.epoch):
            points = step_points(job, steps)
            steps = points[-1][0] if points else steps
            calls += [partial(session.log, metrics, step) for step, metrics in points]
        return [*calls, partial(session.log, epoch_metrics(record), record.epoch)], steps


def epoch_metrics(record: EpochRecord) -> dict[str, float]:
    """The numbers of an epoch: the fields of the record, its metrics, and the calls and tokens of each LLM.

    Trackers make a group of what has a common prefix, and some a group for each name without one.
    """
    fields = record.model_dump(exclude={"epoch", "played", "avg_reward"})
    grouped = {f"epoch/{name}": value for name, value in fields.items()}
    calls = {
        f"cost/{purpose}/{name}/{field}": count
        for purpose, used in record.usage.items()
        for name, each in used.items()
        for field, count in each
    }
    return _finite({"avg_reward": record.avg_reward} | grouped | record.metrics | calls)


def step_points(job: JobRecord, after: int = 0) -> list[tuple[int, dict[str, float]]]:
    """The optimizer steps of a job, numbered through the run: as the backend counts them, and all after `after`.

    A step without a gradient has no number. A job of several models has the steps of one after the other, under
    `<role>/<metric>`.
    """
    steps = [
        step
        for step in job.steps
        if all(value != 0 for name, value in step.items() if name.rpartition("/")[2] == "grad_norm")
    ]
    first = max(after, count_of(job.metrics, "policy_step", len(steps)) - len(steps))
    return [
        (first + place, {f"step/{name}": value for name, value in _finite(step).items()})
        for place, step in enumerate(steps, start=1)
    ]


def validation_metrics(record: ValidationRecord) -> dict[str, float]:
    """The statistics of a validation, and the ends of the mean's 95 % interval."""
    found = dict(record.statistics)
    if rewards := record.rewards:
        found["interval_low"], found["interval_high"] = interval(rewards, *score_range(rewards))
    return {f"val/{name}": value for name, value in _finite(found).items()}


def verdict_facts(summary: RunSummary) -> dict[str, str | float]:
    """The summary's numbers and words that are not None, under `verdict/`."""
    found = summary.model_dump(mode="json", exclude={"run_id"})
    if summary.interval is not None:
        found["interval_low"], found["interval_high"] = summary.interval
    if summary.best is not None:
        found |= {"best_epoch": summary.best.epoch, "best_score": summary.best.score}
    found["causes"] = "; ".join(map(str, summary.causes)) or None
    return {f"verdict/{name}": value for name, value in found.items() if isinstance(value, str | float | int)}


def _facts(journal: Journal) -> Iterator[tuple[str, str | float]]:
    """The verdict, and where the plot and the models are that the run has kept."""
    best, places = journal.find(BestEpoch), {}
    if best is not None:
        places["checkpoint"] = best.checkpoint
    if (summary := journal.find(RunSummary)) is not None:
        yield from verdict_facts(summary).items()
        places |= {"plot": summary.plot, "model": summary.model, "best_model": summary.best_model}
    for name, place in places.items():
        if place is not None and (path := journal.run_dir.absolute() / place).exists():
            yield f"artifact/{name}", str(path)


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(v) for name, v in values.items() if isinstance(v, float | int) and isfinite(v)}


def _row(record: RolloutRecord) -> dict[str, Cell]:
    said = (f"{each.get('role')}: {each.get('content') or each.get('tool_calls')}" for each in record.messages)
    return {
        "example_id": record.example_id,
        "generation": record.generation,
        "reward": record.reward,
        "conversation": _cell("\n".join(said)),
        "output": _cell(record.output),
        "left_out": record.left_out and str(record.left_out),
        "error": _cell(record.error),
        "completion_tokens": record.completion_tokens,
        "seconds": round(record.seconds, 3),
    }


def _cell(text: str | None) -> str | None:
    return text if text is None or len(text) <= _CELL_CHARS else f"{text[:_CELL_CHARS]} …"
