"""A training call as the event loop sees it: metrics as they come, then a good end or the reason of a bad one."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from nat.art.server.batch import ArtBatch
from nat.backend.training.job import Job
from nat.errors import TrainingFailed, UpdateCanceled
from nat.wire.training import JobStatus, TrainingConfig


class TrainingCall:
    """Goes on whether or not somebody iterates over it."""

    def __init__(self, job: Job, batch: ArtBatch) -> None:
        self._job = job
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._steps: asyncio.Queue[dict[str, float] | None] = asyncio.Queue()
        job.finished.add_done_callback(lambda _: self._tell(None))

    @property
    def job_id(self) -> str:
        return self._job.state.id

    @property
    def facts(self) -> Mapping[str, float]:
        """What the batch was made of."""
        return self._batch.facts

    @property
    def config(self) -> TrainingConfig:
        return self._batch.config

    def on_step(self, metrics: dict[str, float]) -> None:
        """Take metrics from the model thread."""
        self._tell(metrics)

    def cancel(self) -> None:
        """Stop at the next micro-batch; nothing happens if it has ended."""
        self._job.stop()

    async def __aiter__(self) -> AsyncIterator[dict[str, float]]:
        """Metrics of each optimizer step; ends when the checkpoint is on disk and the new weights are served.

        Raises:
            UpdateCanceled: someone asked for it to stop.
            TrainingFailed: it failed; in both cases the weights are as before.

        """
        while (metrics := await self._steps.get()) is not None:
            yield metrics
        state = self._job.state
        if state.status is JobStatus.CANCELED:
            raise UpdateCanceled(f"training call {state.id} was canceled")
        if state.failure is not None:
            raise TrainingFailed(state.failure.message, hint=state.failure.hint or None)

    def _tell(self, news: dict[str, float] | None) -> None:
        self._loop.call_soon_threadsafe(self._steps.put_nowait, news)
