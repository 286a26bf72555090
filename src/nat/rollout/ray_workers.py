"""Play rollouts in processes of a Ray cluster, each with the workflow of the run.

Ray places the processes, and carries inputs and rollouts. A rollout whose process dies is played again in another one:
it is the same rollout, with the same seed, and nothing that the dead process did is recorded.
"""

import asyncio
import logging
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from nat.builder.builder import Builder
from nat.capture.context import CapturePolicy
from nat.data_models.config import Config
from nat.data_models.evaluate import RayRollouts
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import ANY_FAILURE, ConfigError, WorkflowError, describe_error, first_error
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.rollout.remote import rollout_options
from nat.rollout.rollout import ITEM_TIMEOUT, Rollout, failure_of
from nat.rollout.served import ServedWorkflow, opened_workflow
from nat.wire.extras import install_hint, missing_packages
from nat.wire.hosts import is_loopback
from nat.wire.rollout import RolloutOptions

logger = logging.getLogger(__name__)

TRIES = 3
"""Of a rollout whose process dies; then it has failed, since it may be what ends the processes."""
START_SECONDS = 300.0
"""Within which a process has opened the workflow; a cluster without free resources starts none."""
GRACE_SECONDS = 30.0
"""Beyond the time limit of a rollout, after which its process is taken to hang: the agent blocks its thread."""
_AUTO = "auto"
_AT_ONCE = 1000
"""Calls of an actor at the same time; the session bounds the rollouts."""
_CLOSE_SECONDS = 10.0
_OWN_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Resources that Ray takes by names of their own."""


class WorkerLost(Exception):
    """The process has ended, or cannot be reached any more."""


class Workers:
    """Plays each rollout in the process that plays the fewest, and replaces processes that end."""

    def __init__(self, start: Callable[[], Awaitable["RayProcess"]], *, deadline: float | None) -> None:
        """`start` opens a process; `deadline` is the time limit of a rollout in seconds, which processes keep."""
        self._start = start
        self._deadline = deadline
        self._playing: dict[RayProcess, int] = {}
        """How many rollouts each living process plays."""
        self._replacements: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    @property
    def nodes(self) -> dict[str, int]:
        """How many processes each machine has, by its address."""
        return Counter(process.node for process in self._playing)

    async def open(self, count: int) -> None:
        """Start so many processes; raise what keeps one of them from starting."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(self._add())

    async def play(self, item: EvalInputItem, *, seed: int | None, generation: int, policy: CapturePolicy) -> Rollout:
        """One rollout; its failure is part of the record.

        Raises:
            WorkflowError: no process is left, and none can be started.

        """
        options = rollout_options(policy, item_id=str(item.id), generation=generation, seed=seed)
        began, failure = datetime.now(UTC), None
        limit = None if self._deadline is None else self._deadline + GRACE_SECONDS
        for _ in range(TRIES):
            process = await self._freest()
            self._playing[process] += 1
            try:
                async with asyncio.timeout(limit):
                    return await process.play(item.input_obj, options)
            except TimeoutError:
                self._replace(process, "it hangs")
                message = f"no answer within {self._deadline:g} s ({ITEM_TIMEOUT}); the agent blocks its process"
                failure = failure_of(item, generation, "timeout", "TimeoutError", message)
                break
            except WorkerLost as error:
                self._replace(process, str(error))
                message = f"its process ended each of the {TRIES} times that it was played: {error}"
                failure = failure_of(item, generation, "raised", type(error).__name__, message)
            finally:
                if process in self._playing:
                    self._playing[process] -= 1
        seconds = (datetime.now(UTC) - began).total_seconds()
        return Rollout(options.item_id, generation, None, [], failure, seed, began, seconds)

    async def close(self) -> None:
        """End all processes."""
        for task in self._replacements:
            task.cancel()
        await asyncio.gather(*(process.close() for process in self._playing))

    async def _freest(self) -> "RayProcess":
        while not self._playing and (starting := [task for task in self._replacements if not task.done()]):
            await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
        if not self._playing:
            seen = "" if self._failure is None else f": {describe_error(self._failure)}"
            raise WorkflowError(
                f"no process of the workflow is left{seen}", hint="see that the cluster has the resources for one"
            ) from self._failure
        return min(self._playing, key=self._playing.__getitem__)

    async def _add(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                self._playing[await self._start()] = 0
        except TimeoutError as error:
            raise WorkflowError(
                f"a process of the workflow did not start within {START_SECONDS:g} s",
                hint="see that the resources of all processes are free, and that the workflow opens quickly",
            ) from error

    def _replace(self, process: "RayProcess", cause: str) -> None:
        """Once for a process, however many rollouts it played."""
        if self._playing.pop(process, None) is None:
            return
        process.kill()
        logger.warning("a process of the workflow is replaced: %s", cause)

        async def replacement() -> None:
            try:
                await self._add()
            except ANY_FAILURE as error:
                self._failure = error
                logger.warning("a process of the workflow could not be started again: %s", describe_error(error))

        self._replacements.append(asyncio.create_task(replacement()))


def check_installed(given: RayRollouts | None) -> None:
    """Raise ConfigError if rollouts are to be played by Ray and it is not installed."""
    if given is not None and missing_packages(["ray"]):
        raise ConfigError(["rollouts.ray: the package ray is not installed"], hint=install_hint("ray"))


@asynccontextmanager
async def ray_workers(given: RayRollouts, config: Config, builder: Builder) -> AsyncIterator[Workers]:
    """Processes with the workflow of a configuration, whose LLMs are those that the builder serves.

    Raises:
        ConfigError: Ray is not installed, or has no cluster at the address.
        WorkflowError: a process cannot open the workflow, or cannot reach an LLM.

    """
    check_installed(given)
    llms = {name: (await builder.get_llm_provider(name)).config for name in config.llms}
    general = config.general.model_copy(update={"telemetry": type(config.general.telemetry)()})
    config = config.model_copy(update={"llms": llms, "general": general})
    ray, ours = await asyncio.to_thread(_connected, given.ray)
    if threading.current_thread() is threading.main_thread():
        # Ray's library ends the process at SIGTERM by an abort; a run ends in order, and can be resumed.
        for number in (signal.SIGTERM, signal.SIGINT):
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)
    workers = Workers(partial(RayProcess.started, ray, given, config), deadline=config.eval.general.item_timeout)
    try:
        async with first_error():
            await workers.open(given.workers)
        yield workers
    finally:
        await workers.close()
        if ours:
            await asyncio.to_thread(ray.shutdown)


def _connected(address: str) -> tuple[ModuleType, bool]:
    """Ray, connected, and whether this call did it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    runs = "RAY_ADDRESS" in os.environ or (Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster").exists()
    if address == _AUTO and not runs:  # read when Ray is imported: a cluster of one machine listens on loopback only
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        return ray, False
    try:
        ray.init(address=None if address == _AUTO else address, include_dashboard=False, logging_level="error")
    except (ConnectionError, ValueError, OSError, RuntimeError, TimeoutError) as error:
        raise ConfigError(
            [f"rollouts.ray: no cluster of Ray at {address!r}: {describe_error(error)}"],
            hint="start one with `ray start --head`, or leave the key out to use this machine alone",
        ) from error
    return ray, True


class RayProcess:
    """An actor, whose errors are ours."""

    def __init__(self, ray: ModuleType, actor: Any) -> None:
        self._ray = ray
        self._actor = actor
        self.node = ""

    @classmethod
    async def started(cls, ray: ModuleType, given: RayRollouts, config: Config) -> "RayProcess":
        """A process that has opened the workflow."""
        resources = dict(given.resources_per_worker)
        own = {option: resources.pop(name) for name, option in _OWN_OPTIONS.items() if name in resources}
        options = {"num_cpus": 0, **own, "resources": resources, "max_restarts": 0, "max_task_retries": 0}
        actor = ray.remote(_Actor).options(**options, max_concurrency=_AT_ONCE, scheduling_strategy="SPREAD").remote()
        process = cls(ray, actor)
        try:
            await process._open(config)
        except BaseException:
            process.kill()
            raise
        return process

    async def _open(self, config: Config) -> None:
        opening = self._actor.open.remote(_pickled(config), str(Path.cwd()), sys.path)
        try:
            self.node, failure = await self._answer(opening)
        except WorkerLost as error:
            raise WorkflowError(f"a process of the workflow ended while it was opened: {error}") from error
        if failure is not None:
            raise WorkflowError(f"a process on {self.node} cannot open the workflow: {failure}")
        if self.node == self._ray.util.get_node_ip_address():
            return
        for name, llm in config.llms.items():
            url = getattr(llm, "base_url", None)
            if url is not None and is_loopback(urlsplit(str(url)).hostname or ""):
                raise WorkflowError(
                    f"a process on {self.node} cannot reach llms.{name}, which listens on this machine alone: {url}",
                    hint="serve the model at an address of the network (`nat backend serve --host`)",
                )

    async def play(self, value: Any, options: RolloutOptions) -> Rollout:
        rollout: Rollout = pickle.loads(  # noqa: S301 - of our own process
            await self._answer(self._actor.play.remote(value, options))
        )
        return rollout

    async def close(self) -> None:
        with suppress(WorkerLost, WorkflowError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._answer(self._actor.close.remote())
        self.kill()

    def kill(self) -> None:
        self._ray.kill(self._actor)

    async def _answer(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return await reference
        except errors.RayTaskError as error:
            raise WorkflowError(f"a process of the workflow failed: {describe_error(error.cause)}") from error
        except errors.RayError as error:
            raise WorkerLost(describe_error(error).partition("\n")[0]) from error
        except asyncio.CancelledError:
            self._ray.cancel(reference)
            raise


class _Actor:
    """In a process of the cluster: the workflow, open as long as the process lives."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._served: ServedWorkflow | None = None

    async def open(self, sent: bytes, folder: str, path: Sequence[str]) -> tuple[str, str | None]:
        """Open the workflow as the run's process would: the address of this node, and what failed."""
        from ray.util import get_node_ip_address

        with suppress(OSError):
            os.chdir(folder)
        sys.path += [each for each in path if each not in sys.path]
        try:
            discover_components()
            config = pickle.loads(sent)  # noqa: S301 - of the run that started it
            for name in config.imports:
                import_components(name)
            self._served = await self._stack.enter_async_context(opened_workflow(config))
        except ANY_FAILURE as error:
            return get_node_ip_address(), describe_error(error)
        return get_node_ip_address(), None

    async def close(self) -> None:
        """Close the workflow."""
        await self._stack.aclose()

    async def play(self, value: Any, options: RolloutOptions) -> bytes:
        """One rollout; it has failed if its output cannot leave the process."""
        assert self._served is not None, "a process plays after it was opened"
        rollout = await self._served.run(value, options)
        try:
            return _pickled(rollout)
        except ANY_FAILURE as error:
            failure = RolloutFailure(
                item_id=rollout.item_id,
                generation=rollout.generation,
                kind="raised",
                type=type(error).__name__,
                message=f"the workflow's output cannot be sent to another process: {describe_error(error)}",
            )
            return _pickled(replace(rollout, output=None, error=failure, steps=[]))


def _pickled(value: object) -> bytes:
    from ray import cloudpickle

    sent: bytes = cloudpickle.dumps(value)
    return sent
