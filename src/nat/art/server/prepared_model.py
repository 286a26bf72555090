"""One client's model in memory, and how a training call trains, saves and serves it."""

import logging
from dataclasses import dataclass

from nat.art.server.batch import ArtBatch
from nat.art.server.store import ModelKey, version
from nat.backend.algorithms.registry import resolve
from nat.backend.checkpoint_folder import TrainedJob
from nat.backend.inference.engine import Engine
from nat.backend.lora import Adapter
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.job_table import Job
from nat.backend.training.learner import Learner, OnStep, Report
from nat.wire.training import JobState

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class PreparedModel:
    """A model that can be trained and sampled, for the model thread.

    `step` counts its training calls; the learner counts optimizer steps.
    """

    key: ModelKey
    adapter: Adapter
    learner: Learner
    engine: Engine
    checkpoints: Checkpoints
    step: int
    entity: str | None = None
    """Part of the names that ART's serverless client has for its weights; None without such a client."""
    job: Job | None = None
    """The newest training call."""

    @property
    def busy(self) -> bool:
        """True while a training call waits or runs."""
        return self.job is not None and not self.job.state.status.final

    def has(self, step: int) -> bool:
        """True if the weights after `step` training calls can be served."""
        return step == self.step or self.checkpoints.find(step) is not None

    def train(self, batch: ArtBatch, job: Job, *, report: Report, on_step: OnStep) -> JobState:
        """Train, save, and only then serve; after a failure weights, optimizer and step are as before.

        A batch without signal trains nothing, but counts as a training call: it has a step, a checkpoint and one line
        of metrics.
        """
        optimizer_step, number = self.learner.step, self.step + 1
        try:
            with self.learner.all_or_nothing():
                metrics = self._update(batch, report, on_step)
                done = job.completed(metrics, version(self.key.name, number))
                self.checkpoints.save(self.adapter.loaded, self.learner, TrainedJob(state=done), number=number)
        except BaseException:
            self.checkpoints.delete([number])
            raise
        self.step = number
        self.engine.policy_version = version(self.key.name, number)
        logger.info("%s is at step %d, %d optimizer steps later", self.key, number, self.learner.step - optimizer_step)
        return done

    def _update(self, batch: ArtBatch, report: Report, on_step: OnStep) -> dict[str, float]:
        if not batch.groups:
            on_step({"num_gradient_steps": 0.0})
            return {}
        return self.learner.update(batch.groups, resolve(batch.config), report=report, on_step=on_step)
