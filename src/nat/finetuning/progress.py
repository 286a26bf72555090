"""What a run tells while it goes on; the command line shows it, the run does not care how."""

from pathlib import Path
from typing import Protocol

from nat.runs.records import EpochRecord, JobRecord, Phase, ValidationRecord


class Progress(Protocol):
    """Called from the run's event loop; must return at once."""

    def run_started(self, run_id: str, run_dir: Path, num_epochs: int) -> None: ...

    def epoch_started(self, epoch: int, num_epochs: int) -> None:
        """`epoch` counts from 0."""

    def rollouts_started(self, phase: Phase, total: int | None) -> None:
        """`total` counts all generations; None if it is not known."""

    def rollout_done(self, error: str | None) -> None:
        """`error` is why it failed; None if it did not."""

    def training_started(self, num_groups: int, num_trajectories: int) -> None: ...

    def training_finished(self, job: JobRecord) -> None: ...

    def epoch_finished(self, record: EpochRecord) -> None: ...

    def validation_finished(self, record: ValidationRecord) -> None: ...

    def message(self, text: str) -> None:
        """Something that the user should know, in one or more whole sentences."""


class NullProgress:
    """Tells nobody."""

    def run_started(self, run_id: str, run_dir: Path, num_epochs: int) -> None:
        pass

    def epoch_started(self, epoch: int, num_epochs: int) -> None:
        pass

    def rollouts_started(self, phase: Phase, total: int | None) -> None:
        pass

    def rollout_done(self, error: str | None) -> None:
        pass

    def training_started(self, num_groups: int, num_trajectories: int) -> None:
        pass

    def training_finished(self, job: JobRecord) -> None:
        pass

    def epoch_finished(self, record: EpochRecord) -> None:
        pass

    def validation_finished(self, record: ValidationRecord) -> None:
        pass

    def message(self, text: str) -> None:
        pass
