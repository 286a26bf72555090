"""A model that can be trained and asked: its adapter, learner, engine and checkpoints, for the model thread."""

import logging
from dataclasses import dataclass

from nat.art.server.batch import ArtBatch
from nat.art.server.names import ModelKey, version
from nat.backend.adapters import Adapter
from nat.backend.inference.engine import Engine
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.job import Job
from nat.backend.training.learner import Learner, OnStep, Report
from nat.wire.training import JobState

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class PreparedModel:
    """Weights of a client's own; `step` counts its training calls, the learner counts optimizer steps."""

    key: ModelKey
    adapter: Adapter
    learner: Learner
    engine: Engine
    checkpoints: Checkpoints
    step: int
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
        """Train, save, and only then serve; whatever fails, weights, optimizer and step are as before.

        A batch without signal trains nothing, but it is a training call: it has a step, a checkpoint and one line of
        metrics.
        """
        optimizer_step, number = self.learner.step, self.step + 1
        try:
            with self.learner.all_or_nothing():
                metrics = self._update(batch, report, on_step)
                done = job.completed(metrics, version(self.key.name, number))
                self.checkpoints.save(self.adapter.loaded, self.learner, [done], number=number)
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
        return self.learner.update(batch.groups, batch.config, report=report, on_step=on_step)
