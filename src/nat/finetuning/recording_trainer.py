"""What the trainers of this project have in common: each joins a run, and records in its journal what it does."""

import logging
from contextlib import ExitStack
from hashlib import sha256
from typing import Any, ClassVar
from uuid import uuid4

import yaml

from nat.data_models.finetuning import FinetuneConfig, TrainerConfig, TrainingJobStatus, TrainingStatusEnum
from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.lifecycle import check_ready
from nat.finetuning.run_context import RunContext, current_run, open_run
from nat.runs.records import RunState

logger = logging.getLogger(__name__)


class RecordingTrainer(Trainer):
    """Records rollouts, jobs and epochs by itself; of other trainers, the run watches the calls and does it."""

    title: ClassVar[str] = "Trainer"
    """Name in the log."""
    run_prefix: ClassVar[str] = ""
    """If set, the run's name in the log and in jobs begins with it; else that name is the one of the run's folder."""

    def __init__(self, trainer_config: TrainerConfig, **kwargs: Any) -> None:
        super().__init__(trainer_config, **kwargs)
        self._context: RunContext | None = None
        self._run_id = f"{self.run_prefix}{uuid4().hex[:8]}" if self.run_prefix else None
        self._resources = ExitStack()
        self._statuses: list[TrainingJobStatus] = []

    @property
    def context(self) -> RunContext:
        """The run that this trainer was initialized in."""
        return check_ready(self, self._context)

    @property
    def run_id(self) -> str:
        """The run's name in the log and in jobs; folders have other names, which sort by time."""
        return self._run_id or self.context.run_id

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Join the current run, or open one if there is none; called for each phase that this trainer trains."""
        await super().initialize(run_config)
        text = yaml.safe_dump(run_config.model_dump(mode="json", exclude={"run_configuration"}))
        self._context = current_run()
        if self._context is None:
            self._context = self._resources.enter_context(open_run(run_config, text))
            self._resources.callback(self._end_own_run)
        if self.run_prefix:  # the same when the run goes on, so that a server finds its jobs
            self._run_id = f"{self.run_prefix}{sha256(self._context.run_id.encode()).hexdigest()[:8]}"
        logger.info("%s initialized with run ID: %s", self.title, self.run_id)

    async def cleanup(self) -> None:
        """Close the run that this trainer opened for itself, if it did."""
        self._resources.close()

    def _end_own_run(self) -> None:
        done = [status.status is TrainingStatusEnum.COMPLETED for status in self._statuses]
        self.context.end(RunState.COMPLETED if done and all(done) else RunState.FAILED)
