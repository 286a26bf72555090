"""A run's folder, `<output_dir>/<run_id>/`, and its files for people and scripts.

    <output_dir>/
    ├── 20260314-092653-5a1f/      one folder per run; names sort by time
    ├── latest -> 20260314-…       the newest run, switched by one rename
    └── reward_plot.png -> latest/reward_plot.png, and so on for the file names of the guide

The files are derived from the journal, which has all of their content, and are replaced whole. A file or folder of the
user's is never replaced: if one has the name of a link, the link is left out with a warning.
"""

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

from nat.data_models.rollout_failure import FirstFailure
from nat.errors import JournalError
from nat.eval.failures import FAILURES_NAME, failures_text
from nat.files import replace_link, replacing, write_text
from nat.runs.journal import Journal
from nat.runs.records import EpochRecord, Phase, RunSummary, ValidationRecord
from nat.secrets import redact_json

logger = logging.getLogger(__name__)

LATEST = "latest"
GUIDE_NAMES = (
    "training_metrics.jsonl",
    "reward_history.json",
    "validation_history.json",
    "curriculum_state.json",
    "reward_plot.png",
    "data_collection_progress.jsonl",
    "collection_history.json",
    "final_metrics.json",
    "summary.json",
)
"""The files that the toolkit's guides expect in `output_dir` itself, and the summary."""

_SECOND = "%Y%m%d-%H%M%S"


def new_run_id(now: datetime) -> str:
    """A name that sorts by time, in steps of 1/65536 s."""
    return f"{now:{_SECOND}}-{now.microsecond * 0x10000 // 1_000_000:04x}"


def create_run_folder(output_dir: Path, run_id: str) -> Path:
    """Create the run's folder, mode 0700, and point `latest` at it; JournalError if it exists."""
    run_dir = output_dir / run_id
    try:
        run_dir.mkdir(parents=True, mode=0o700)
    except FileExistsError as error:
        raise JournalError(f"{run_dir} exists already", hint="Give the new run another id.") from error
    _link(output_dir / LATEST, run_id)
    return run_dir


def link_guide_names(output_dir: Path) -> None:
    """Link each file name of the guide to the latest run's file; remove links to files that it does not have."""
    for name in GUIDE_NAMES:
        path = output_dir / name
        target = f"{LATEST}/{name}"
        if (output_dir / target).exists():
            _link(path, target)
        elif path.is_symlink() and str(path.readlink()) == target:
            path.unlink()


def _link(path: Path, target: str) -> None:
    if path.exists() and not path.is_symlink():
        logger.warning("%s is not a link, so it is kept; this run's file is %s", path, path.parent / target)
        return
    try:
        replace_link(path, target)
    except OSError as error:  # no symbolic links on this file system or for this user; the run does not need them
        logger.warning("cannot link %s to %s: %s", path, target, error)


CONFIG_NAME = "config.resolved.yaml"
METRICS_NAME = "training_metrics.jsonl"
REWARD_HISTORY_NAME = "reward_history.json"
REWARD_HISTORY_FIELDS = {"epoch", "timestamp", "avg_reward", "min_reward", "max_reward", "num_trajectories"}


def files_due(count: int) -> bool:
    """Whether to write the files after `count` epochs: at first every epoch, later every 2, 4, 8 and so on."""
    return count % doublings(count // 20) == 0


def doublings(ratio: int) -> int:
    """The largest power of two up to `ratio`, at least 1."""
    return 1 << max(0, ratio.bit_length() - 1)


def append_metrics(run_dir: Path, record: EpochRecord) -> None:
    """Append a line to `training_metrics.jsonl`, unbuffered."""
    with (run_dir / METRICS_NAME).open("ab", buffering=0) as file:
        file.write(_metrics_line(record).encode())


def write_files(journal: Journal) -> None:
    """Write every file except the trajectories; the time grows with the number of epochs."""
    run_dir = journal.run_dir
    write_text(run_dir / CONFIG_NAME, journal.info().config_text)
    history: list[dict[str, Any]] = []
    curriculum_state = None
    with replacing(run_dir / METRICS_NAME) as file:
        for epoch in journal.each(EpochRecord):
            file.write(_metrics_line(epoch).encode())
            history.append(_dump(epoch, REWARD_HISTORY_FIELDS))
            curriculum_state = epoch.curriculum_state
    _write_json(run_dir / REWARD_HISTORY_NAME, history)
    if validations := journal.validations():
        rows = [{**_dump(record, {"epoch", "timestamp"}), **record.statistics} for record in validations]
        _write_json(run_dir / "validation_history.json", rows)
    if curriculum_state is not None:
        _write_json(run_dir / "curriculum_state.json", curriculum_state)
    if (summary := journal.find(RunSummary)) is not None:
        _write_json(run_dir / "summary.json", summary.model_dump(mode="json"))
    link_guide_names(run_dir.parent)


def write_rollouts(journal: Journal, phase: Phase, epoch: int) -> None:
    """Write the rollouts of one epoch or validation, and `failures.txt` with one traceback for each kind of failure."""
    write_trajectories(journal, phase, epoch)
    if text := failures_text(list(journal.each(FirstFailure))):
        with replacing(journal.run_dir / FAILURES_NAME) as file:
            file.write(text.encode(errors="backslashreplace"))


def write_trajectories(journal: Journal, phase: Phase, epoch: int) -> Path:
    """Stream one line per rollout into `trajectories/epoch_0003.jsonl` or `validation_0003.jsonl`."""
    stem = "epoch" if phase is Phase.TRAIN else "validation"
    path = trajectories_folder(journal.run_dir) / f"{stem}_{epoch:04d}.jsonl"
    with replacing(path) as file:
        for line in journal.rollout_lines(phase, epoch):
            file.write(line.encode())
            file.write(b"\n")
    return path


def trajectories_folder(run_dir: Path) -> Path:
    """The folder with a file for each epoch's rollouts; a run that has played nothing has none."""
    return run_dir / "trajectories"


def _metrics_line(record: EpochRecord) -> str:
    fields = record.model_dump(mode="json")
    if record.curriculum_state is None:
        del fields["curriculum_state"]
    return redact_json(json.dumps(fields)) + "\n"


def _dump(record: EpochRecord | ValidationRecord, fields: set[str]) -> dict[str, Any]:
    return record.model_dump(mode="json", include=fields)


def _write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
