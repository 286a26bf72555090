"""Build the components of a configuration by name: each once, on one exit stack.

A component that another one needs is opened before it and closed after it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from typing import Any, TypeVar

from nat.builder.function import Function, LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.config.components import named_components
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.function import FunctionBaseConfig
from nat.errors import (
    ANY_FAILURE,
    NatError,
    WorkflowError,
    describe_error,
    did_you_mean,
    one_of,
    own_client_hint,
    place_of,
)
from nat.registry.catalog import Catalog

C = TypeVar("C", bound=TypedBaseModel)
T = TypeVar("T")

_opening: ContextVar[tuple[str, ...]] = ContextVar("nat_opening", default=())
"""The components that are being built around this call, outermost first."""


class Components:
    """Configs by group and name, and built components by their path in the YAML, such as `llms.judge`."""

    def __init__(self, catalog: Catalog, stack: AsyncExitStack) -> None:
        self.catalog = catalog
        self._stack = stack
        self._configs: dict[ComponentGroup, dict[str, TypedBaseModel]] = {group: {} for group in ComponentGroup}
        self._opened: dict[str, Any] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def add_all(self, config: Config) -> None:
        """Add every named component of a configuration."""
        for group, name, component in named_components(config):
            self.add(group, name, component)

    def add(self, group: ComponentGroup, name: str, config: TypedBaseModel) -> None:
        """Add one config; a duplicate name raises WorkflowError."""
        if name in self._configs[group]:
            raise WorkflowError(f"'{name}' is already under {group}", hint="give one of the two another name")
        self._configs[group][name] = config

    def config(self, group: ComponentGroup, name: str, wanted: type[C]) -> C:
        """The config of a name; an unknown name raises WorkflowError."""
        config = self._configs[group].get(name)
        if not isinstance(config, wanted):
            known = self._configs[group]
            raise WorkflowError(f"'{name}' not found under {group}.{did_you_mean(name, known)} There: {one_of(known)}.")
        return config

    def names(self, group: ComponentGroup) -> list[str]:
        return list(self._configs[group])

    async def instance(self, group: ComponentGroup, name: str, builder: Any, wanted: type[Any] = object) -> Any:
        """The component of a name, the same object on every call; WorkflowError unless it has the wanted type."""
        path, config = f"{group}.{name}", self.config(group, name, TypedBaseModel)

        async def build() -> Any:
            return expected(await self.build(group, path, config, builder), wanted, path)

        return await self.once(path, build)

    def opened(self, path: str) -> Any:
        """The component at a path, None if it was not built."""
        return self._opened.get(path)

    async def once(self, path: str, build: Callable[[], Awaitable[Any]]) -> Any:
        """The component at a path, built on the first call; components that need each other raise WorkflowError."""
        chain = _opening.get()
        if path in chain:
            circle = " → ".join((*chain[chain.index(path) :], path))
            raise WorkflowError(f"components need each other in a circle: {circle}")
        async with self._locks.setdefault(path, asyncio.Lock()):
            if path not in self._opened:
                token = _opening.set((*chain, path))
                try:
                    self._opened[path] = await build()
                finally:
                    _opening.reset(token)
        return self._opened[path]

    async def build(self, group: ComponentGroup, path: str, config: TypedBaseModel, builder: Any) -> Any:
        """Enter the registered build function of a config; the stack closes it."""
        component = self.catalog.component_of(group, config)
        return await self.enter(path, config, component.build_fn(config, builder))

    async def enter(self, path: str, config: TypedBaseModel, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a build function; its failure names the component."""
        try:
            return await self._stack.enter_async_context(manager)
        except NatError:
            raise
        except ANY_FAILURE as error:
            what = f"{path} (_type: {config.static_type()})"
            if str(error) == "generator didn't yield":
                raise WorkflowError(
                    f"{what}: its build function ended before its `yield`", hint="`yield` the built object exactly once"
                ) from error
            raise WorkflowError(
                f"{what} could not be built: {describe_error(error)} ({place_of(error)})",
                hint=own_client_hint(error),
            ) from error


def as_function(yielded: Any, path: str, name: str, config: FunctionBaseConfig) -> Function:
    """The yielded Function under its key; a FunctionInfo or a plain callable is wrapped."""
    if isinstance(yielded, Function):
        yielded.instance_name = name
        return yielded
    if callable(yielded):
        yielded = FunctionInfo.from_fn(yielded)
    info = expected(yielded, FunctionInfo, path, also="a Function or a callable")
    return LambdaFunction.from_info(config=config, info=info, instance_name=name)


def expected(yielded: Any, wanted: type[T], path: str, *, also: str = "") -> T:
    """The yielded object if it has the type, else WorkflowError."""
    if isinstance(yielded, wanted):
        return yielded
    alternatives = f"{wanted.__name__}, {also}" if also else wanted.__name__
    raise WorkflowError(f"{path}: its build function yielded {type(yielded).__name__}; wanted: {alternatives}")
