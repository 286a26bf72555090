"""Progress of a run, reported to a display and to the log files of its components."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nat.files import write_text
from nat.finetuning.run_log import EpochBegun, Event, RolloutDone, RolloutsBegun, RunBegun, Said, StepBegun, Warned
from nat.runs.folder import METRICS_NAME, REWARD_HISTORY_FIELDS, REWARD_HISTORY_NAME
from nat.runs.records import EpochRecord, JobRecord, Phase, TrainingPhase, ValidationRecord
from nat.secrets import redact_json


class RunProgress:
    """Observes a run; override the methods to display its progress. Called from the run's event loop."""

    goes_on = False
    """Whether an earlier process has begun the run; known when the run has started."""

    def __call__(self, event: Event) -> None:
        match event:
            case StepBegun():
                self.step_started(event.what)
            case RunBegun():
                self.goes_on = event.goes_on
                self.run_started(event.run_id, event.run_dir, event.num_epochs)
            case TrainingPhase():
                self.phase_started(event)
            case EpochBegun():
                self.epoch_started(event.epoch, event.num_epochs)
            case RolloutsBegun():
                self.rollouts_started(event.phase, event.total)
            case RolloutDone():
                self.rollout_done(event.error)
            case JobRecord() if event.status.final:
                self.training_finished(event)
            case JobRecord():
                self.training_started(event.num_groups, event.num_trajectories)
            case EpochRecord():
                self.epoch_finished(event)
            case ValidationRecord():
                self.validation_finished(event)
            case Warned():
                self.warning(event.text)
            case Said():
                self.message(event.text)

    def step_started(self, what: str) -> None:
        """A step other than rollouts and training, such as loading the model; it may take long."""

    def run_started(self, run_id: str, run_dir: Path, num_epochs: int) -> None:
        pass

    def phase_started(self, phase: TrainingPhase) -> None:
        """Called only in a run with phases."""

    def epoch_started(self, epoch: int, num_epochs: int) -> None:
        """`epoch` counts from 0."""

    def rollouts_started(self, phase: Phase, total: int | None) -> None:
        """`total` counts all generations; None if it is not known."""

    def rollout_done(self, error: str | None) -> None:
        """`error` is why it failed; None if it did not."""

    def training_started(self, num_groups: int, num_trajectories: int) -> None:
        pass

    def training_finished(self, job: JobRecord) -> None:
        pass

    def epoch_finished(self, record: EpochRecord) -> None:
        pass

    def validation_finished(self, record: ValidationRecord) -> None:
        pass

    def message(self, text: str) -> None:
        """A message for the user, in one or more whole sentences."""

    def warning(self, text: str) -> None:
        """Likewise, of something that is likely wrong; it stands in the log as well."""
        self.message(text)


DEFAULT_FOLDER = Path(".tmp/nat/finetuning")


def append_progress(component: str, run_id: str, facts: Mapping[str, Any], *, output_dir: str | None = None) -> None:
    """Append a line to `<component>_<run_id>.jsonl`, in the component's default folder if none is given."""
    folder = Path(output_dir) if output_dir else DEFAULT_FOLDER / component
    line = {"timestamp": _now(), "run_id": run_id, **facts}
    _append_line(folder / f"{component}_{run_id}.jsonl", line)


def append_epoch_metrics(folder: Path, epoch: int, metrics: Mapping[str, Any]) -> None:
    """Append an epoch to `training_metrics.jsonl` and, if it has an average reward, to `reward_history.json`."""
    line = {"epoch": epoch, "timestamp": _now(), **metrics}
    _append_line(folder / METRICS_NAME, line)
    if "avg_reward" in line:
        history = folder / REWARD_HISTORY_NAME
        entries = json.loads(history.read_text("utf-8")) if history.exists() else []
        entries.append({name: line[name] for name in sorted(REWARD_HISTORY_FIELDS) if name in line})
        write_text(history, json.dumps(entries, indent=2, default=str) + "\n")


def _append_line(path: Path, line: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
        file.write(redact_json(json.dumps(line, default=str)) + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat()
