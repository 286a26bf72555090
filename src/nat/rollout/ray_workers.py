"""Processes of a Ray cluster that play rollouts; Ray places them, and carries inputs and rollouts."""

import asyncio
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from nat.builder.builder import Builder
from nat.data_models.config import Config
from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.ray_rollouts import RayRollouts
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import ANY_FAILURE, ConfigError, WorkflowError, describe_error, first_error
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.rollout.rollout import Rollout
from nat.rollout.served import ServedWorkflow, opened_workflow
from nat.rollout.workers import WorkerLost, Workers
from nat.wire.extras import install_hint, missing_packages
from nat.wire.hosts import is_loopback
from nat.wire.rollout import RolloutOptions

_AUTO = "auto"
_AT_ONCE = 1000
"""Calls of an actor at the same time; the session bounds the rollouts."""
_CLOSE_SECONDS = 10.0
_OWN_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Resources that Ray takes by names of their own."""


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
    _take_signals_back()
    workers = Workers(partial(_started, ray, given, config), deadline=config.eval.general.item_timeout)
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


def _take_signals_back() -> None:
    """Ray's library ends the process at SIGTERM by an abort; a run ends in order, and can be resumed."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)


async def _started(ray: ModuleType, given: RayRollouts, config: Config) -> "_RayProcess":
    """A process that has opened the workflow."""
    resources = dict(given.resources_per_worker)
    own = {option: resources.pop(name) for name, option in _OWN_OPTIONS.items() if name in resources}
    options = {"num_cpus": 0, **own, "resources": resources, "max_restarts": 0, "max_task_retries": 0}
    actor = ray.remote(_Actor).options(**options, max_concurrency=_AT_ONCE, scheduling_strategy="SPREAD").remote()
    process = _RayProcess(ray, actor)
    try:
        await process.open(config)
    except BaseException:
        process.kill()
        raise
    return process


class _RayProcess:
    """An actor, whose errors are ours."""

    def __init__(self, ray: ModuleType, actor: Any) -> None:
        self._ray = ray
        self._actor = actor
        self.node = ""

    async def open(self, config: Config) -> None:
        try:
            self.node, failure = await self._answer(
                self._actor.open.remote(_pickled(config), str(Path.cwd()), sys.path)
            )
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
            return _pickled(replace(rollout, output=None, error=failure, steps=_sendable(rollout.steps)))


def _pickled(value: object) -> bytes:
    from ray import cloudpickle

    sent: bytes = cloudpickle.dumps(value)
    return sent


def _sendable(steps: Sequence[IntermediateStep]) -> list[IntermediateStep]:
    found = []
    for step in steps:
        with suppress(*ANY_FAILURE):
            _pickled(step)
            found.append(step)
    return found
