"""The files of a run that people and scripts read, derived from the journal and replaced whole.

Names and fields are those that users of the guide know; the journal has all they have, so any of them can
be made again from it.
"""

import json
from pathlib import Path
from typing import Any

from nat.eval.failures import FAILURES_NAME, failures_text
from nat.files import replacing, write_text
from nat.runs.folder import link_guide_names
from nat.runs.journal import Journal
from nat.runs.records import EpochRecord, Phase, ValidationRecord
from nat.secrets import redact_json

CONFIG_NAME = "config.resolved.yaml"
METRICS_NAME = "training_metrics.jsonl"
REWARD_HISTORY_NAME = "reward_history.json"
REWARD_HISTORY_FIELDS = {"epoch", "timestamp", "avg_reward", "min_reward", "max_reward", "num_trajectories"}


def files_due(count: int) -> bool:
    """Whether to write the files after so many epochs: at first each time, later after 2, 4, 8 and more."""
    return count % doublings(count // 20) == 0


def doublings(ratio: int) -> int:
    """The largest power of two that is not above the ratio, at least 1."""
    return 1 << max(0, ratio.bit_length() - 1)


def append_metrics(run_dir: Path, record: EpochRecord) -> None:
    """One more line of `training_metrics.jsonl`, written at once."""
    with (run_dir / METRICS_NAME).open("ab", buffering=0) as file:
        file.write(_metrics_line(record).encode())


def write_files(journal: Journal) -> None:
    """Every file except the trajectories; takes time with the number of epochs."""
    run_dir = journal.run_dir
    write_text(run_dir / CONFIG_NAME, journal.info().config_text)
    history: list[dict[str, Any]] = []
    curriculum_state = None
    with replacing(run_dir / METRICS_NAME) as file:
        for epoch in journal.each_epoch():
            file.write(_metrics_line(epoch).encode())
            history.append(_dump(epoch, REWARD_HISTORY_FIELDS))
            curriculum_state = epoch.curriculum_state
    _write_json(run_dir / REWARD_HISTORY_NAME, history)
    if validations := journal.validations():
        _write_json(run_dir / "validation_history.json", [_validation(record) for record in validations])
    if curriculum_state is not None:
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


def _metrics_line(record: EpochRecord) -> str:
    fields = record.model_dump(mode="json")
    if record.curriculum_state is None:
        del fields["curriculum_state"]
    return redact_json(json.dumps(fields)) + "\n"


def _validation(record: ValidationRecord) -> dict[str, Any]:
    return {**_dump(record, {"epoch", "timestamp"}), **record.statistics}


def _dump(record: EpochRecord | ValidationRecord, fields: set[str]) -> dict[str, Any]:
    return record.model_dump(mode="json", include=fields)


def _write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
