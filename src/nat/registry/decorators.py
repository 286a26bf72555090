"""The `register_*` decorators: each registers a build function for a config class.

A build function is an async generator `(config, builder)` that yields exactly one object; the code after the `yield`
is its teardown. The decorators return it as an async context manager.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig
from nat.data_models.tracker import TrackerConfig
from nat.errors import RegistryError
from nat.registry.catalog import GROUPS, RegisteredComponent, Registry, current_catalog

T = TypeVar("T")
Generator = Callable[..., AsyncGenerator[T, None]]
Manager = Callable[..., AbstractAsyncContextManager[Any]]
Decorator = Callable[[Generator[Any]], Manager]


class Register(Protocol):
    """Makes the decorator of a build function, for the class of its configs."""

    def __call__(self, config_type: type[TypedBaseModel]) -> Decorator: ...


def from_config(make: Callable[[Any], T]) -> Generator[T]:
    """The build function of a component that needs only its config; trainers get the others by `bind_components`."""

    async def build(config: Any, _builder: Any) -> AsyncGenerator[T, None]:
        yield make(config)

    return build


def _register(group: ComponentGroup, description: str) -> Register:
    def register(config_type: type[TypedBaseModel]) -> Decorator:
        return _component(group, config_type)

    register.__doc__ = description
    return register


def register_function(
    config_type: type[FunctionBaseConfig],
    framework_wrappers: Sequence[str] | None = None,  # noqa: ARG001 - the guide's signature
) -> Decorator:
    """Build a function or workflow: yield a FunctionInfo, a Function or a plain callable.

    `framework_wrappers` changes nothing: calls are captured below all frameworks.
    """
    return _component(ComponentGroup.FUNCTIONS, config_type)


register_llm_provider = _register(ComponentGroup.LLMS, "Build an LLM provider: yield an LLMProviderInfo.")
register_evaluator = _register(ComponentGroup.EVALUATORS, "Build an evaluator: yield an EvaluatorInfo.")
register_dataset_loader = _register(ComponentGroup.DATASETS, "Build a dataset loader: yield a DatasetLoaderInfo.")
register_trajectory_builder = _register(
    ComponentGroup.TRAJECTORY_BUILDERS, "Build a trajectory builder: yield the instance."
)
register_trainer_adapter = _register(ComponentGroup.TRAINER_ADAPTERS, "Build a trainer adapter: yield the instance.")
register_trainer = _register(ComponentGroup.TRAINERS, "Build a trainer: yield the instance.")
register_ttc_strategy = _register(
    ComponentGroup.TTC_STRATEGIES, "Build a test-time-compute strategy: yield the instance."
)


def register_eval_callback(
    config_type: type[TelemetryExporterBaseConfig],
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a plain function `(config)` that returns an EvalCallback; `nat eval` calls it.

    For a TracingConfig it returns a `SpanExporter` of OpenTelemetry, which gets every rollout's spans.
    """

    def decorate(fn: Callable[..., T]) -> Callable[..., T]:
        _component(ComponentGroup.EVAL_CALLBACKS, config_type)(from_config(fn))
        return fn

    return decorate


def register_tracker(config_type: type[TrackerConfig]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a plain function `open(run, config)` that gives a TrackerSession (`nat.runs.tracker`)."""

    def decorate(fn: Callable[..., T]) -> Callable[..., T]:
        _component(ComponentGroup.TRACKERS, config_type)(from_config(lambda config: lambda run: fn(run, config)))
        return fn

    return decorate


def register_llm_client(config_type: type[LLMBaseConfig], wrapper_type: str) -> Decorator:
    """Build a framework's client for a provider's config: yield the client object."""
    name = _full_type(config_type, LLMBaseConfig)

    def decorate(fn: Generator[Any]) -> Manager:
        clients = current_catalog().llm_clients
        registry = clients.setdefault(str(wrapper_type), Registry(f"{wrapper_type} client for the LLM"))
        registry.add(name, manager := _manager(fn))
        return manager

    return decorate


def register_tool_wrapper(wrapper_type: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a plain function `(name, fn, builder)` that returns a framework's tool object for a Function."""

    def decorate(fn: Callable[..., T]) -> Callable[..., T]:
        current_catalog().tool_wrappers.add(str(wrapper_type), fn)
        return fn

    return decorate


def _component(group: ComponentGroup, config_type: type[TypedBaseModel]) -> Decorator:
    name = _full_type(config_type, GROUPS[group].base_config)

    def decorate(fn: Generator[Any]) -> Manager:
        manager = _manager(fn)
        current_catalog().components[group].add(name, RegisteredComponent(group, config_type, manager))
        return manager

    return decorate


def _manager(fn: Generator[Any]) -> Manager:
    if not inspect.isasyncgenfunction(fn):
        raise RegistryError(
            f"{getattr(fn, '__qualname__', repr(fn))} is not an async generator",
            hint="write `async def` and `yield` the built object exactly once",
        )
    return asynccontextmanager(fn)


def _full_type(config_type: Any, base: type[TypedBaseModel]) -> str:
    name: str = getattr(config_type, "__qualname__", repr(config_type))
    if not isinstance(config_type, type) or not issubclass(config_type, base):
        raise RegistryError(
            f"a decorator got {name} where a class derived from {base.__name__} was expected",
            hint=f"write `@register_…(config_type=MyConfig)`, with `class MyConfig({base.__name__}, name=…)`",
        )
    if (full_type := config_type.static_full_type()) is None:
        raise RegistryError(f"{name} has no type name", hint=f'write `class {name}({base.__name__}, name="…")`')
    return full_type
