"""Play the rollouts of later epochs, in turn, while the backend trains on earlier ones."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from nat.data_models.finetuning import TrajectoryCollection
from nat.runs.rollouts import RolloutRecord


@dataclass(frozen=True)
class CollectedRollouts:
    """All rollouts of an epoch."""

    trajectories: TrajectoryCollection
    records: Sequence[RolloutRecord]
    seconds: float
    """In which they were played."""


Play = Callable[[], Awaitable[CollectedRollouts]]


class RolloutsAhead:
    """The epochs that were admitted and not taken, the oldest first; an error is raised where its epoch is taken."""

    def __init__(self) -> None:
        self._tasks: deque[asyncio.Task[CollectedRollouts]] = deque()
        self._ended = 0.0
        self._began: float | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def seconds(self) -> float:
        """Seconds in which rollouts were played so far."""
        return self._ended + (0.0 if self._began is None else monotonic() - self._began)

    def admit(self, epoch: int, play: Play) -> None:
        """Play an epoch as soon as those before it are played."""
        before = self._tasks[-1] if self._tasks else None
        self._tasks.append(asyncio.create_task(self._played(play, before), name=f"rollouts of epoch {epoch}"))

    async def take(self) -> CollectedRollouts:
        """Wait for the oldest epoch; canceling the wait cancels its rollouts."""
        return await self._tasks.popleft()

    async def finish(self) -> None:
        """Wait for all epochs, which can be taken afterwards."""
        for task in self._tasks:
            await task

    async def abandon(self) -> None:
        """Cancel the rollouts, and wait for their end; errors of theirs are dropped."""
        tasks, self._tasks = self._tasks, deque()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _played(self, play: Play, before: asyncio.Task[CollectedRollouts] | None) -> CollectedRollouts:
        if before is not None:
            await asyncio.wait({before})
            before.result()  # an epoch after a failed one is not played
        self._began = monotonic()
        try:
            return await play()
        finally:
            self._ended, self._began = self.seconds, None
