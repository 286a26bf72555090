"""A running training call, and the stream in which clients read its gradient steps.

The stream has one JSON object per gradient step. Clients look for no error inside of it, so none is written there: a
body that ends without its last chunk is how they learn of a failure. The first header goes out before training begins.
"""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from nat.art.server.batch import ArtBatch
from nat.art.wire import JOB_ID_HEADER, NEW_STEPS, STEPS
from nat.backend.training.job_table import Job
from nat.errors import TrainingFailed, UpdateCanceled
from nat.wire.training import JobStatus

logger = logging.getLogger(__name__)

_OLD_NAMES = {
    "loss": "loss",
    "policy_loss": "policy_loss",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "reference_kl": "kl_div",
}
"""Our names → those of servers up to 0.5.16."""
_NEW_NAMES = {
    "loss": "loss/train",
    "entropy": "loss/entropy",
    "grad_norm": "loss/grad_norm",
    "learning_rate": "loss/learning_rate",
    "reference_kl": "loss/kl_policy_ref",
    "logprob_diff_mean": "loss/sampler_logprob_difference",
}
"""Our names → those of servers from 0.5.17 on; the last one is ours: mean |Δ log p| of learner and sampler."""


class TrainingCall:
    """A running training call; it continues even if its metrics are not read.

    Takes metrics from the model thread and gives them to the event loop.
    """

    def __init__(self, job: Job, batch: ArtBatch) -> None:
        self._job = job
        self.facts = batch.facts
        self._loop = asyncio.get_running_loop()
        self._steps: asyncio.Queue[dict[str, float] | None] = asyncio.Queue()
        job.finished.add_done_callback(lambda _: self.on_step(None))

    @property
    def job_id(self) -> str:
        return self._job.state.id

    def on_step(self, metrics: dict[str, float] | None) -> None:
        """Take metrics from the model thread; None is the end."""
        self._loop.call_soon_threadsafe(self._steps.put_nowait, metrics)

    def cancel(self) -> None:
        """Stop at the next micro-batch, unless the call has ended."""
        self._job.stop()

    async def __aiter__(self) -> AsyncIterator[dict[str, float]]:
        """Metrics of each optimizer step, `num_gradient_steps` the same in each.

        Ends when the checkpoint is on disk and the new weights are served.

        Raises:
            TrainingFailed: it failed or was canceled; the weights are as before.

        """
        while (metrics := await self._steps.get()) is not None:
            yield metrics
        state = self._job.state
        if state.status is JobStatus.CANCELED:
            raise UpdateCanceled(f"training call {state.id} was canceled")
        if state.failure is not None:
            raise TrainingFailed(state.failure.message, hint=state.failure.hint or None)


def stream_metrics(
    step_metrics: Mapping[str, float], facts: Mapping[str, float], num_gradient_steps: int
) -> dict[str, float]:
    """Give one line of the stream: both families of names, and the facts of the batch, as finite numbers.

    A call that trained nothing has neither steps nor tokens, and no loss.
    """
    line = {**facts, STEPS: num_gradient_steps, NEW_STEPS: num_gradient_steps}
    if num_gradient_steps:
        named = [(ours, name) for names in (_OLD_NAMES, _NEW_NAMES) for ours, name in names.items()]
        line |= {name: step_metrics[ours] for ours, name in named if ours in step_metrics}
    return {name: float(value) for name, value in line.items() if math.isfinite(value)}


async def call_metrics(call: TrainingCall) -> AsyncIterator[dict[str, float]]:
    """Each gradient step in the names that clients of all versions know."""
    async for step in call:
        yield stream_metrics(step, call.facts, int(step[STEPS]))


class TrainingStream(StreamingResponse):
    """Streams a call's metrics, without a Content-Type as ART's servers do; cancels the call if the client goes."""

    def __init__(self, call: TrainingCall) -> None:
        lines = (json.dumps(metrics, allow_nan=False) + "\n" async for metrics in call_metrics(call))
        super().__init__(lines, headers={JOB_ID_HEADER: call.job_id})
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except TrainingFailed:
            # The job has logged why; an answer without its last chunk is closed by the server, without a traceback.
            logger.warning("the answer to training call %s is cut off, so that its client notices", self._call.job_id)
        finally:
            self._call.cancel()
