"""Play the rollouts of the next epoch while the backend trains on the last one."""

import asyncio
from collections.abc import Awaitable, Callable

from nat.data_models.finetuning import TrajectoryCollection
from nat.finetuning.run_context import Stopwatch


class RolloutsAhead:
    """The rollouts of one epoch in a task of their own; their error is raised where they are taken."""

    def __init__(self, epoch: int, play: Callable[[], Awaitable[TrajectoryCollection]]) -> None:
        self._watch = Stopwatch()
        self._seconds: float | None = None
        self._task = asyncio.create_task(self._timed(play), name=f"rollouts of epoch {epoch}")

    @property
    def seconds(self) -> float:
        """Seconds that the rollouts have taken so far, or took."""
        return self._watch.total if self._seconds is None else self._seconds

    async def collected(self) -> TrajectoryCollection:
        """Wait for the trajectories; canceling the wait cancels the rollouts."""
        return await self._task

    async def abandon(self) -> None:
        """Cancel the rollouts, and wait for their end; an error of theirs is dropped."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _timed(self, play: Callable[[], Awaitable[TrajectoryCollection]]) -> TrajectoryCollection:
        try:
            return await play()
        finally:
            self._seconds = self._watch.total
