"""`dataset_traj_builder`: trajectories from a file instead of rollouts."""

import logging
from pathlib import Path
from typing import Any

from pydantic import Field

from nat.data_models.finetuning import Trajectory, TrajectoryBuilderConfig, TrajectoryCollection
from nat.errors import DatasetError
from nat.files import UserPath
from nat.finetuning.example_choice import in_turn
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder
from nat.finetuning.progress import append_progress
from nat.plugins.datasets import raise_findings, read_csv, read_json, read_jsonl, read_parquet
from nat.plugins.offline.rows import example_of, kind_of, trajectory_of
from nat.registry.decorators import from_config, register_trajectory_builder

logger = logging.getLogger(__name__)

READERS = {".jsonl": read_jsonl, ".json": read_json, ".csv": read_csv, ".parquet": read_parquet}


class DatasetTrajectoryBuilderConfig(TrajectoryBuilderConfig, name="dataset_traj_builder"):
    """Trains on the rows of a file, demonstrations or preferences, and plays no rollouts but those of validations."""

    gives = "texts"

    file_path: UserPath
    """JSON lines, a JSON list, CSV or parquet, by its suffix. Columns: `messages`; `prompt` and `completion`, with or
    without `label` or `reward`; or `chosen` and `rejected`, with or without `prompt`."""
    examples_per_epoch: int | None = Field(default=64, ge=1)
    """Rows that an epoch trains on, the next ones of shuffled passes over the file; null takes all of them. Rows with
    rewards are taken with all others of the same prompt."""

    def check_files(self) -> None:
        read_examples(self.file_path)


class DatasetTrajectoryBuilder(TrajectoryBuilder):
    """Reads the file once; an epoch takes the next rows of it."""

    trajectory_builder_config: DatasetTrajectoryBuilderConfig

    def __init__(self, trajectory_builder_config: DatasetTrajectoryBuilderConfig) -> None:
        super().__init__(trajectory_builder_config)
        self._examples = read_examples(trajectory_builder_config.file_path)
        self._started: dict[str, int] = {}

    async def start_run(self, run_id: str, meta: dict[str, Any] | None = None) -> None:
        """Nothing has to be played."""
        self._started[run_id] = int((meta or {}).get("epoch", 0))

    async def finalize(self, run_id: str, meta: dict[str, Any] | None = None) -> TrajectoryCollection:
        """The rows of the epoch.

        Raises:
            ValueError: `start_run` was not called with this id.

        """
        if run_id not in self._started:
            raise ValueError(f"No run was started with the id {run_id}")
        groups = self.rows_of(self._started.pop(run_id), self.run_config.seed)
        logger.info("Took %d rows of %s", sum(map(len, groups)), self.trajectory_builder_config.file_path)
        return TrajectoryCollection(trajectories=groups, run_id=run_id)

    def rows_of(self, epoch: int, seed: int) -> list[list[Trajectory]]:
        """The rows that an epoch takes, by example."""
        wanted = self.trajectory_builder_config.examples_per_epoch
        count = len(self._examples) if wanted is None else wanted
        chosen = in_turn(list(self._examples), count, begin=epoch * count, seed=seed)
        return [self._examples[example] for example in chosen]

    def log_progress(self, run_id: str, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append a line to `trajectory_builder_<run_id>.jsonl`."""
        facts = {"file_path": str(self.trajectory_builder_config.file_path), **metrics}
        append_progress("trajectory_builder", run_id, facts, output_dir=output_dir)


def read_examples(path: Path) -> dict[str, list[Trajectory]]:
    """The rows of a file as trajectories by example; those with rewards belong to the example of their prompt.

    Raises:
        DatasetError: the file cannot be read, has no rows, or rows of several kinds.
        InvalidTrajectories: it has rows that cannot be trained on; the error names the first ones.

    """
    reader = READERS.get(Path(path.name.removesuffix(".gz")).suffix.lower())
    if reader is None:
        raise DatasetError(f"{path}: its suffix names none of the formats {', '.join(READERS)}")
    examples: dict[str, list[Trajectory]] = {}
    kinds: dict[str, int] = {}
    findings: list[str] = []
    for number, row in enumerate(reader(path), start=1):
        example = example_of(row, number)
        try:
            trajectory = trajectory_of(row, example)
        except ValueError as error:
            findings.append(f"row {number}: {error}")
            continue
        kinds.setdefault(kind_of(trajectory), number)
        examples.setdefault(example, []).append(trajectory)
    page = "docs/recipes/demonstrations.md"
    raise_findings(path, findings, hint=f"the columns are those of TRL's dataset formats ({page})")
    if len(kinds) != 1:
        seen = "; ".join(f"row {number} has {kind}" for kind, number in kinds.items()) or "it has no rows"
        raise DatasetError(f"{path}: {seen}", hint="a file has rows of one kind")
    return examples


register_trajectory_builder(config_type=DatasetTrajectoryBuilderConfig)(from_config(DatasetTrajectoryBuilder))
