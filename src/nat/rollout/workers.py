"""Play rollouts in other processes, each with the workflow of the run.

A rollout whose process dies is played again in another one: it is the same rollout, with the same seed, and nothing
that the dead process did is recorded.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Protocol

from nat.capture.policy import CapturePolicy
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import ANY_FAILURE, WorkflowError, describe_error
from nat.rollout.remote import rollout_options
from nat.rollout.rollout import ITEM_TIMEOUT, Rollout, failure_of
from nat.wire.rollout import RolloutOptions

logger = logging.getLogger(__name__)

TRIES = 3
"""Of a rollout whose process dies; then it has failed, since it may be what ends the processes."""
START_SECONDS = 300.0
"""Within which a process has opened the workflow; a cluster without free resources starts none."""
GRACE_SECONDS = 30.0
"""Beyond the time limit of a rollout, after which its process is taken to hang: the agent blocks its thread."""


class Play(Protocol):
    """Plays one rollout; its failure is part of the record."""

    async def __call__(
        self,
        item: EvalInputItem,
        /,
        *,
        seed: int | None,
        generation: int,
        policy: CapturePolicy,
    ) -> Rollout: ...


class WorkerLost(Exception):
    """The process has ended, or cannot be reached any more."""


class WorkerProcess(Protocol):
    """A process with an open workflow."""

    @property
    def node(self) -> str:
        """Address of the machine that it runs on."""
        ...

    async def play(self, value: Any, options: RolloutOptions) -> Rollout:
        """Play one rollout; WorkerLost if the process is gone."""
        ...

    async def close(self) -> None:
        """Close the workflow, if that is quick, and end the process."""
        ...

    def kill(self) -> None:
        """End it, whatever it does."""
        ...


@dataclass(eq=False)
class _Seat:
    process: WorkerProcess
    playing: int = 0


class Workers:
    """Plays each rollout in the process that plays the fewest, and replaces processes that end."""

    def __init__(self, start: Callable[[], Awaitable[WorkerProcess]], *, deadline: float | None) -> None:
        """`start` opens a process; `deadline` is the time limit of a rollout in seconds, which processes keep."""
        self._start = start
        self._deadline = deadline
        self._seats: list[_Seat] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._failure: BaseException | None = None

    @property
    def nodes(self) -> dict[str, int]:
        """How many processes each machine has, by its address."""
        return Counter(seat.process.node for seat in self._seats)

    async def open(self, count: int) -> None:
        """Start so many processes; raise what keeps one of them from starting."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(self._add())

    async def play(
        self,
        item: EvalInputItem,
        *,
        seed: int | None,
        generation: int,
        policy: CapturePolicy,
    ) -> Rollout:
        """One rollout; its failure is part of the record.

        Raises:
            WorkflowError: no process is left, and none can be started.

        """
        options = rollout_options(policy, item_id=str(item.id), generation=generation, seed=seed)
        began = datetime.now(UTC)

        played = await self._played(item, options)
        if isinstance(played, Rollout):
            return played
        seconds = (datetime.now(UTC) - began).total_seconds()
        return Rollout(options.item_id, generation, None, [], played, seed, began, seconds)

    async def _played(self, item: EvalInputItem, options: RolloutOptions) -> Rollout | RolloutFailure:
        limit, lost = None if self._deadline is None else self._deadline + GRACE_SECONDS, WorkerLost()
        for _ in range(TRIES):
            seat = await self._freest()
            seat.playing += 1
            try:
                async with asyncio.timeout(limit):
                    return await seat.process.play(item.input_obj, options)
            except TimeoutError:
                self._replace(seat, "it hangs")
                message = f"no answer within {self._deadline:g} s ({ITEM_TIMEOUT}); the agent blocks its process"
                return failure_of(item, options.generation, "timeout", "TimeoutError", message)
            except WorkerLost as error:
                lost = error
                self._replace(seat, str(error))
            finally:
                seat.playing -= 1
        message = f"its process ended each of the {TRIES} times that it was played: {lost}"
        return failure_of(item, options.generation, "raised", type(lost).__name__, message)

    async def close(self) -> None:
        """End all processes."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*(seat.process.close() for seat in self._seats))

    async def _freest(self) -> _Seat:
        async with self._changed:
            await self._changed.wait_for(lambda: self._seats or not self._starting)
        if not self._seats:
            seen = "" if self._failure is None else f": {describe_error(self._failure)}"
            raise WorkflowError(
                f"no process of the workflow is left{seen}", hint="see that the cluster has the resources for one"
            ) from self._failure
        return min(self._seats, key=attrgetter("playing"))

    async def _add(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                process = await self._start()
        except TimeoutError as error:
            raise WorkflowError(
                f"a process of the workflow did not start within {START_SECONDS:g} s",
                hint="see that the resources of all processes are free, and that the workflow opens quickly",
            ) from error
        async with self._changed:
            self._seats.append(_Seat(process))
            self._changed.notify_all()

    def _replace(self, seat: _Seat, cause: str) -> None:
        """Once for a process, however many rollouts it played."""
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        seat.process.kill()
        logger.warning("a process of the workflow is replaced: %s", cause)
        task = asyncio.create_task(self._replacement())
        self._starting.add(task)

    async def _replacement(self) -> None:
        try:
            await self._add()
        except ANY_FAILURE as error:
            self._failure = error
            logger.warning("a process of the workflow could not be started again: %s", describe_error(error))
        finally:
            async with self._changed:
                self._starting.discard(asyncio.current_task())
                self._changed.notify_all()
