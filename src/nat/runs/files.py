"""The files of a run that people and scripts read, derived from the journal and replaced whole.

Names and fields are those that users of the guide know; the journal has all they have, so any of them can
be made again from it.
"""

import json
from pathlib import Path
from typing import Any

from nat.eval.failures import FAILURES_NAME, failures_text
from nat.runs.atomic import replacing, write_text
from nat.runs.folder import link_guide_names
from nat.runs.journal import Journal
from nat.runs.records import EpochRecord, Phase, ValidationRecord

CONFIG_NAME = "config.resolved.yaml"

_HISTORY_FIELDS = {"epoch", "timestamp", "avg_reward", "min_reward", "max_reward", "num_trajectories"}


def write_files(journal: Journal) -> None:
    """Every file except the trajectories; cheap, so call it after each epoch and validation."""
    run_dir = journal.run_dir
    epochs = journal.epochs()
    write_text(run_dir / CONFIG_NAME, journal.info().config_text)
    write_text(run_dir / "training_metrics.jsonl", "".join(f"{json.dumps(_metrics(epoch))}\n" for epoch in epochs))
    _write_json(run_dir / "reward_history.json", [_dump(epoch, _HISTORY_FIELDS) for epoch in epochs])
    if validations := journal.validations():
        _write_json(run_dir / "validation_history.json", [_validation(record) for record in validations])
    if epochs and (curriculum_state := epochs[-1].curriculum_state) is not None:
        _write_json(run_dir / "curriculum_state.json", curriculum_state)
    if (summary := journal.summary()) is not None:
        _write_json(run_dir / "summary.json", summary.model_dump(mode="json"))
    link_guide_names(run_dir.parent)


def write_rollouts(journal: Journal, phase: Phase, epoch: int) -> None:
    """The files about the rollouts of one epoch or validation: what was said, and what failed."""
    write_trajectories(journal, phase, epoch)
    write_failures(journal)


def write_trajectories(journal: Journal, phase: Phase, epoch: int) -> Path:
    """One line per rollout in `trajectories/epoch_0003.jsonl` or `validation_0003.jsonl`, streamed."""
    path = trajectories_path(journal.run_dir, phase, epoch)
    with replacing(path) as file:
        for line in journal.rollout_lines(phase, epoch):
            file.write(line.encode())
            file.write(b"\n")
    return path


def write_failures(journal: Journal) -> Path | None:
    """`failures.txt`, one traceback for each way to fail; None if nothing failed."""
    text = failures_text(journal.failures())
    if not text:
        return None
    with replacing(journal.run_dir / FAILURES_NAME) as file:
        file.write(text.encode(errors="backslashreplace"))
    return journal.run_dir / FAILURES_NAME


def trajectories_path(run_dir: Path, phase: Phase, epoch: int) -> Path:
    """Where the rollouts of an epoch lie; its number is the `epoch` of the metrics."""
    stem = "epoch" if phase is Phase.TRAIN else "validation"
    return run_dir / "trajectories" / f"{stem}_{epoch:04d}.jsonl"


def _metrics(record: EpochRecord) -> dict[str, Any]:
    fields = record.model_dump(mode="json")
    if record.curriculum_state is None:
        del fields["curriculum_state"]
    return fields


def _validation(record: ValidationRecord) -> dict[str, Any]:
    return {
        **_dump(record, {"epoch", "timestamp"}),
        "avg_reward": record.avg_reward,
        "min_reward": record.min_reward,
        "max_reward": record.max_reward,
        "num_examples": record.num_examples,
        "num_failed": record.num_failed,
    }


def _dump(record: EpochRecord | ValidationRecord, fields: set[str]) -> dict[str, Any]:
    return record.model_dump(mode="json", include=fields)


def _write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
