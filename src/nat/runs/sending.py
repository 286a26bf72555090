"""Send a run to a tracker from its journal: as it goes on, after it was killed, or years later.

The journal is closed while the tracker works, which may take long.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.score import mean_interval
from nat.data_models.tracker import TrackerConfig
from nat.registry.catalog import current_catalog
from nat.runs.folder import checked_name
from nat.runs.journal import Journal, reading
from nat.runs.recorded_config import config_of
from nat.runs.records import EpochRecord, JobRecord, Phase, RunSummary, ValidationRecord, count_of
from nat.runs.rollouts import RolloutRecord
from nat.runs.tracker import Cell, TrackedRun, TrackerSession, is_of_steps

_CELL_CHARS = 4000
"""Of a text in a table."""
_NO_METRICS = {"epoch", "phase", "timestamp", "run_id", "metrics", "examples", "left_out", "failures", "played"}
_NO_FACTS = {"run_id", "interval", "failures", "broken_by", "best", "causes", "phases"}


class Table(NamedTuple):
    """The arguments of `TrackerSession.table`."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    step: int


class Part(NamedTuple):
    """What a tracker gets at once: an epoch with the validations before it, or what comes after the last one."""

    numbers: list[tuple[int, dict[str, float]]]
    tables: list[Table | None]
    texts: Mapping[str, str | float] = {}

    def give(self, session: TrackerSession) -> None:
        for step, metrics in self.numbers:
            session.log(metrics, step)
        for table in filter(None, self.tables):
            session.table(*table)
        for name, value in self.texts.items():
            session.text(name, value)


class Sending:
    """A tracker, and the epochs of a run that it was given. Use it from one thread."""

    def __init__(self, name: str, config: TrackerConfig, run_dir: Path) -> None:
        """Nothing of the tracker is called before the first `send`."""
        self.name, self._config, self._run_dir = name, config, run_dir.absolute()
        self._build = current_catalog().component_of(ComponentGroup.TRACKERS, config).build_fn
        self._session: TrackerSession | None = None
        self.epochs = self._steps = 0

    def send(self, *, last: bool = False) -> None:
        """Give the tracker the epochs that it does not have; with `last`, the end of the run as well.

        Raises what the tracker raises; a further call opens it again, and goes on.
        """
        session, self._session = self._session or self._opened(), None
        while (part := self._next()) is not None:
            part.give(session)
            self.epochs += 1
            self._steps = max([self._steps, *(step for step, metrics in part.numbers if is_of_steps(metrics))])
        if last:
            with reading(self._run_dir) as journal:
                part, state = self._end(journal), journal.info().state
            part.give(session)
            session.finish(state)
        else:
            self._session = session

    def _opened(self) -> TrackerSession:
        with reading(self._run_dir) as journal:
            info = journal.info()
        run_id = checked_name(info.run_id)  # names files of trackers, and the journal may be of others
        session: TrackerSession = asyncio.run(self._built())(
            TrackedRun(run_id, self._run_dir, config_of(info.config_text))
        )
        return session

    async def _built(self) -> Any:
        async with self._build(self._config, None) as opener:
            return opener

    def _next(self) -> Part | None:
        with reading(self._run_dir) as journal:
            record = next(journal.each_epoch(self.epochs), None)
            if record is None:
                return None
            before = takewhile(lambda each: each.epoch <= record.epoch, journal.each_validation(self.epochs))
            numbers, tables = self._validations(journal, before)
            steps = self._steps
            for job in journal.jobs(record.epoch):
                points = step_points(job, steps)
                steps = points[-1][0] if points else steps
                numbers += points
            tables.append(_table(journal, Phase.TRAIN, record.epoch, self._config.rollouts))
            return Part([*numbers, (record.epoch, epoch_metrics(record))], tables)

    def _end(self, journal: Journal) -> Part:
        numbers, tables = self._validations(journal, journal.each_validation(self.epochs))
        tables.append(_table(journal, Phase.TRAIN, self.epochs, self._config.rollouts))  # that was not finished
        summary = journal.summary()
        facts = {} if summary is None else verdict_facts(summary)
        return Part(numbers, tables, facts | dict(_paths(journal)))

    def _validations(
        self, journal: Journal, records: Iterator[ValidationRecord]
    ) -> tuple[list[tuple[int, dict[str, float]]], list[Table | None]]:
        found = list(records)
        tables = [_table(journal, Phase.VALIDATION, each.epoch, self._config.rollouts) for each in found]
        return [(each.epoch, validation_metrics(each)) for each in found], tables


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


def step_points(job: JobRecord, after: int = 0) -> list[tuple[int, dict[str, float]]]:
    """The optimizer steps of a job, numbered through the run: as the backend counts them, and all after `after`.

    A job of several models has the steps of one after the other, under `<role>/<metric>`.
    """
    steps = [
        step
        for step in job.steps
        if 0 not in (value for name, value in step.items() if (name.rpartition("/")[2] == "grad_norm"))
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


def _table(journal: Journal, phase: Phase, epoch: int, most: int) -> Table | None:
    """The first rollouts; None if there is none."""
    found = [_row(record) for record in islice(journal.rollouts(phase, epoch), most)] if most else []
    name = "rollouts" if phase is Phase.TRAIN else "held_out_rollouts"
    return Table(name, [*found[0]], [[*row.values()] for row in found], epoch) if found else None


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


def _paths(journal: Journal) -> Iterator[tuple[str, str]]:
    """Where the plot and the models are that the run has kept."""
    summary, best = journal.summary(), journal.best()
    named = {"checkpoint": None if best is None else best.checkpoint}
    if summary is not None:
        named |= {"plot": summary.plot, "model": summary.model, "best_model": summary.best_model}
    for name, place in named.items():
        if place is not None and (path := journal.run_dir.absolute() / place).exists():
            yield f"artifact/{name}", str(path)
