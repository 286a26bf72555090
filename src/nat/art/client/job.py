"""A training call in its own task, which keeps the result."""

import asyncio
from collections.abc import Callable, Coroutine
from statistics import fmean
from typing import Any

from nat.art.wire import NEW_STEPS, STEPS, TRAINED_GROUPS, TRAINED_TOKENS
from nat.data_models.finetuning import TrainingJobRef, TrainingJobStatus
from nat.data_models.score import is_finite
from nat.errors import NatError, describe_error
from nat.wire.training import JobStatus

Report = Callable[[dict[str, Any]], None]
"""Receives the metrics of a gradient step."""
Work = Callable[[Report], Coroutine[Any, Any, str | None]]
"""Trains and returns the name of the new weights."""

_TRAINED = {"trained_groups": TRAINED_GROUPS, "trained_tokens": TRAINED_TOKENS}
"""Metrics that every backend reports, and their names on an ART server."""


class ArtJob:
    """Runs `work` at once; never raises."""

    def __init__(self, ref: TrainingJobRef, work: Work, *, seconds: float, done: str | None = None) -> None:
        """`done` says how a job without gradient steps has trained; by default it has not."""
        self.ref = ref
        self._without_steps = done
        self._lines: list[dict[str, float]] = []
        self._seconds = seconds
        self._final: TrainingJobStatus | None = None
        self.task = asyncio.create_task(self._run(work), name=f"training of {ref.run_id}")

    @property
    def active(self) -> bool:
        return not self.task.done()

    @property
    def status(self) -> TrainingJobStatus:
        """The current status; of a job that has ended, the final one."""
        if self._final is not None:
            return self._final
        if self.task.done():  # it was canceled before it began
            return self._make_status(JobStatus.CANCELED, "Training was canceled.")
        return self._make_status(JobStatus.RUNNING, "Training is in progress.", progress=self._progress)

    async def end(self) -> TrainingJobStatus:
        """Wait for the end; canceling the wait does not cancel the job."""
        await asyncio.wait([self.task])
        return self.status

    async def cancel(self) -> TrainingJobStatus:
        """Close the stream, which tells the server to stop."""
        self.task.cancel()
        return await self.end()

    async def _run(self, work: Work) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                version = await work(self._add)
        except asyncio.CancelledError:
            self._final = self._make_status(JobStatus.CANCELED, "Training was canceled.")
            raise
        except TimeoutError:
            text = f"it was not done within {self._seconds:.0f} s (`timeout` of the trainer adapter)"
            self._final = self._make_status(JobStatus.FAILED, f"Training failed with error: {text}")
        except Exception as error:  # noqa: BLE001 - the boundary of one job: its failure becomes its status
            reason = str(error) if isinstance(error, NatError) else describe_error(error)
            self._final = self._make_status(JobStatus.FAILED, f"Training failed with error: {reason}")
        else:
            self._final = self._done(version)

    def _add(self, line: dict[str, Any]) -> None:
        """Keep the finite numbers of a gradient step; servers send NaN for a metric that they do not have."""
        self._lines.append({name: float(v) for name, v in line.items() if is_finite(v)})

    @property
    def _progress(self) -> float:
        planned = max((line[name] for line in self._lines for name in (STEPS, NEW_STEPS) if name in line), default=0.0)
        return min(100.0, 100.0 * len(self._lines) / planned) if planned else 0.0

    def _done(self, version: str | None) -> TrainingJobStatus:
        steps = sum(bool(line.get(STEPS, line.get(NEW_STEPS, 1))) for line in self._lines)
        text = self._without_steps or "Training completed successfully."
        metrics = mean_metrics(self._lines)
        trained = {name: metrics[theirs] for name, theirs in _TRAINED.items() if theirs in metrics}
        if not (steps or self._without_steps):
            text += " The server found nothing to train on and made no gradient step."
            trained = dict.fromkeys(_TRAINED, 0.0)
        return self._make_status(
            JobStatus.COMPLETED, text, progress=100.0, policy_version=version, metrics=metrics | trained
        )

    def _make_status(
        self, status: JobStatus, message: str, *, progress: float | None = None, **facts: Any
    ) -> TrainingJobStatus:
        metrics = {"metrics": mean_metrics(self._lines)}
        return self.ref.reported(status, progress=progress, message=message, **(metrics | facts))


def mean_metrics(lines: list[dict[str, float]]) -> dict[str, float]:
    """Each metric's mean over the gradient steps that have it."""
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: fmean(line[name] for line in lines if name in line) for name in names}
