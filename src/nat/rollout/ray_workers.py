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
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from nat.builder.builder import Builder
from nat.capture.context import CapturePolicy
from nat.data_models.config import Config
from nat.data_models.evaluate import RayRollouts
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.evaluator import EvalInputItem
from nat.errors import ANY_FAILURE, ConfigError, WorkflowError, describe_error, first_error
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.rollout.remote import rollout_options
from nat.rollout.rollout import ITEM_TIMEOUT, failure_of
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
_AT_ONCE = 1000
"""Calls of a process at the same time; the session bounds the rollouts."""
_CLOSE_SECONDS = 10.0
_OWN_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Resources that Ray takes by names of their own."""


class Workers:
    """Plays each rollout in the process that plays the fewest, and replaces processes that end."""

    def __init__(
        self, ray: ModuleType, start: Callable[[], Awaitable[tuple[Any, str]]], *, deadline: float | None
    ) -> None:
        """`start` opens a process, Ray's actor on a machine; `deadline` is the time limit of a rollout in seconds."""
        self._ray = ray
        self._start = start
        self._deadline = deadline
        self._playing: dict[Any, int] = {}
        """How many rollouts each living process plays."""
        self._replacements: list[asyncio.Task[None]] = []
        self.nodes: Counter[str] = Counter()
        """How many processes each machine was given, by its address."""

    async def add(self) -> None:
        """Start a process.

        Raises:
            WorkflowError: it cannot open the workflow, or not in time.

        """
        try:
            async with asyncio.timeout(START_SECONDS):
                process, place = await self._start()
        except TimeoutError as error:
            raise WorkflowError(
                f"a process of the workflow did not start within {START_SECONDS:g} s",
                hint="see that the resources of all processes are free, and that the workflow opens quickly",
            ) from error
        self._playing[process] = 0
        self.nodes[place] += 1

    async def play(self, item: EvalInputItem, *, seed: int | None, generation: int, policy: CapturePolicy) -> Rollout:
        """One rollout; its failure is part of the record.

        Raises:
            WorkflowError: no process is left, and none can be started.

        """
        options = rollout_options(policy, item_id=str(item.id), generation=generation, seed=seed)
        began, errors = datetime.now(UTC), self._ray.exceptions
        limit = None if self._deadline is None else self._deadline + GRACE_SECONDS
        for _ in range(TRIES):
            process = await self._freest()
            self._playing[process] += 1
            sent = process.play.remote(item.input_obj, options)
            try:
                async with asyncio.timeout(limit):
                    rollout: Rollout = await sent
                    return rollout
            except TimeoutError:
                kind, why = "timeout", f"no answer within {self._deadline:g} s ({ITEM_TIMEOUT}); the agent blocks it"
                self._replace(process, "it hangs")
                break
            except errors.RayTaskError as error:
                kind, why = "raised", f"it cannot be sent to another process: {describe_error(error.cause)}"
                break
            except errors.RayError as error:
                cause = describe_error(error).partition("\n")[0]
                kind, why = "raised", f"its process ended each of the {TRIES} times that it was played: {cause}"
                self._replace(process, cause)
            except asyncio.CancelledError:
                self._ray.cancel(sent)
                raise
            finally:
                if process in self._playing:
                    self._playing[process] -= 1
        failure = failure_of(item, generation, kind, "TimeoutError" if kind == "timeout" else "WorkerLost", why)
        seconds = (datetime.now(UTC) - began).total_seconds()
        return Rollout(options.item_id, generation, None, [], failure, seed, began, seconds)

    async def _freest(self) -> Any:
        while not self._playing:
            starting = [task for task in self._replacements if not task.done()]
            if not starting:
                raise WorkflowError(
                    "no process of the workflow is left", hint="see that the cluster has the resources for one"
                )
            await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
        return min(self._playing, key=self._playing.__getitem__)

    def _replace(self, process: Any, cause: str) -> None:
        """Once for a process, however many rollouts it played."""
        if self._playing.pop(process, None) is None:
            return
        self._ray.kill(process)
        logger.warning("a process of the workflow is replaced: %s", cause)

        async def replacement() -> None:
            try:
                await self.add()
            except ANY_FAILURE as error:
                logger.warning("a process of the workflow could not be started again: %s", describe_error(error))

        self._replacements.append(asyncio.create_task(replacement()))

    async def close(self) -> None:
        """Close the workflows, and end all processes."""
        for task in self._replacements:
            task.cancel()
        with suppress(TimeoutError, self._ray.exceptions.RayError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*(process.close.remote() for process in self._playing))
        for process in self._playing:
            self._ray.kill(process)


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
    workers = Workers(ray, lambda: _started(ray, given, config), deadline=config.eval.general.item_timeout)
    try:
        async with first_error(), asyncio.TaskGroup() as tasks:
            for _ in range(given.workers):
                tasks.create_task(workers.add())
        yield workers
    finally:
        await workers.close()
        if ours:
            await asyncio.to_thread(ray.shutdown)


def _connected(address: str) -> tuple[ModuleType, bool]:
    """Ray, connected, and whether this call did it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    runs = "RAY_ADDRESS" in os.environ or (Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster").exists()
    if address == "auto" and not runs:  # read when Ray is imported: a cluster of one machine listens on loopback only
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        return ray, False
    try:
        ray.init(address=None if address == "auto" else address, include_dashboard=False, logging_level="error")
    except (ConnectionError, ValueError, OSError, RuntimeError, TimeoutError) as error:
        raise ConfigError(
            [f"rollouts.ray: no cluster of Ray at {address!r}: {describe_error(error)}"],
            hint="start one with `ray start --head`, or leave the key out to use this machine alone",
        ) from error
    return ray, True


async def _started(ray: ModuleType, given: RayRollouts, config: Config) -> tuple[Any, str]:
    """A process that has opened the workflow, and its machine."""
    from ray import cloudpickle

    own = {_OWN_OPTIONS[name]: size for name, size in given.resources_per_worker.items() if name in _OWN_OPTIONS}
    others = {name: size for name, size in given.resources_per_worker.items() if name not in _OWN_OPTIONS}
    options = {"num_cpus": 0, **own, "resources": others, "scheduling_strategy": "SPREAD", "max_concurrency": _AT_ONCE}
    process = ray.remote(_Actor).options(**options).remote()
    try:
        node, failure = await process.open.remote(cloudpickle.dumps(config), str(Path.cwd()), sys.path)
        if failure is not None:
            raise WorkflowError(f"a process on {node} cannot open the workflow: {failure}")
        for name, llm in config.llms.items() if node != ray.util.get_node_ip_address() else ():
            url = getattr(llm, "base_url", None)
            if url is not None and is_loopback(urlsplit(str(url)).hostname or ""):
                raise WorkflowError(
                    f"a process on {node} cannot reach llms.{name}, which listens on this machine alone: {url}",
                    hint="serve the model at an address of the network (`nat backend serve --host`)",
                )
    except ray.exceptions.RayError as error:
        raise WorkflowError(f"a process of the workflow ended while it was opened: {describe_error(error)}") from error
    except BaseException:
        ray.kill(process)
        raise
    return process, node


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

    async def play(self, value: Any, options: RolloutOptions) -> Rollout:
        """One rollout, as Ray sends it."""
        assert self._served is not None, "a process plays after it was opened"
        return await self._served.run(value, options)
