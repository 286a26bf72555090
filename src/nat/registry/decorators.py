"""The `register_*` decorators: each registers a build function for a config class.

A build function is an async generator `(config, builder)` that yields exactly one object; the code after the `yield`
is its teardown. The decorators return it as an async context manager.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig, TracingConfig
from nat.data_models.tracker import TrackerConfig
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.errors import RegistryError
from nat.registry.catalog import GROUPS, RegisteredComponent, current_catalog

P = ParamSpec("P")
T = TypeVar("T")
Generator = Callable[P, AsyncGenerator[T, None]]
Manager = Callable[P, AbstractAsyncContextManager[T]]
Decorator = Callable[[Generator[P, T]], Manager[P, T]]


def from_config(make: Callable[[Any], T]) -> Generator[..., T]:
    """The build function of a component that needs only its config; trainers get the others by `bind_components`."""

    async def build(config: Any, _builder: Any) -> AsyncGenerator[T, None]:
        yield make(config)

    return build


def register_function(
    config_type: type[FunctionBaseConfig],
    framework_wrappers: Sequence[str] | None = None,  # noqa: ARG001 - the guide's signature
) -> Decorator[..., Any]:
    """Build a function or workflow: yield a FunctionInfo, a Function or a plain callable.

    `framework_wrappers` changes nothing: calls are captured below all frameworks.
    """
    return _component(ComponentGroup.FUNCTIONS, config_type)


def register_llm_provider(config_type: type[LLMBaseConfig]) -> Decorator[..., Any]:
    """Build an LLM provider: yield an LLMProviderInfo."""
    return _component(ComponentGroup.LLMS, config_type)


def register_evaluator(config_type: type[EvaluatorBaseConfig]) -> Decorator[..., Any]:
    """Build an evaluator: yield an EvaluatorInfo."""
    return _component(ComponentGroup.EVALUATORS, config_type)


def register_dataset_loader(config_type: type[DatasetBaseConfig]) -> Decorator[..., Any]:
    """Build a dataset loader: yield a DatasetLoaderInfo."""
    return _component(ComponentGroup.DATASETS, config_type)


def register_trajectory_builder(config_type: type[TrajectoryBuilderConfig]) -> Decorator[..., Any]:
    """Build a trajectory builder: yield the instance."""
    return _component(ComponentGroup.TRAJECTORY_BUILDERS, config_type)


def register_trainer_adapter(config_type: type[TrainerAdapterConfig]) -> Decorator[..., Any]:
    """Build a trainer adapter: yield the instance."""
    return _component(ComponentGroup.TRAINER_ADAPTERS, config_type)


def register_trainer(config_type: type[TrainerConfig]) -> Decorator[..., Any]:
    """Build a trainer: yield the instance."""
    return _component(ComponentGroup.TRAINERS, config_type)


def register_ttc_strategy(config_type: type[TTCStrategyBaseConfig]) -> Decorator[..., Any]:
    """Build a test-time-compute strategy: yield the instance."""
    return _component(ComponentGroup.TTC_STRATEGIES, config_type)


def register_eval_callback(
    config_type: type[TelemetryExporterBaseConfig],
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a plain function `(config)` that returns an EvalCallback; `nat eval` calls it."""
    return _of_config(ComponentGroup.EVAL_CALLBACKS, config_type)


def register_trace_exporter(config_type: type[TracingConfig]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a plain function `(config)` that returns a `SpanExporter` of OpenTelemetry for every rollout's spans."""
    return _of_config(ComponentGroup.EVAL_CALLBACKS, config_type, TracingConfig)


def register_tracker(config_type: type[TrackerConfig]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a plain function `open(run, config)` that gives a TrackerSession (`nat.runs.tracker`)."""

    def decorate(fn: Callable[..., T]) -> Callable[..., T]:
        @wraps(fn)
        def opener(config: TrackerConfig) -> Callable[[Any], T]:
            return lambda run: fn(run, config)

        _of_config(ComponentGroup.TRACKERS, config_type)(opener)
        return fn

    return decorate


def register_llm_client(config_type: type[LLMBaseConfig], wrapper_type: str) -> Decorator[..., Any]:
    """Build a framework's client for a provider's config: yield the client object."""
    _check_config(config_type, LLMBaseConfig)

    def decorate(fn: Generator[P, T]) -> Manager[P, T]:
        manager = _manager(fn)
        current_catalog().add_llm_client(config_type, str(wrapper_type), manager)
        return manager

    return decorate


def register_tool_wrapper(wrapper_type: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a plain function `(name, fn, builder)` that returns a framework's tool object for a Function."""

    def decorate(fn: Callable[P, T]) -> Callable[P, T]:
        current_catalog().tool_wrappers.add(str(wrapper_type), fn)
        return fn

    return decorate


def _of_config(
    group: ComponentGroup, config_type: type[TypedBaseModel], base: type[TypedBaseModel] | None = None
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Register a plain function of the config, which inherits from `base` or the group's own class."""
    _check_config(config_type, base or GROUPS[group].base_config)

    def decorate(fn: Callable[..., T]) -> Callable[..., T]:
        _component(group, config_type)(from_config(fn))
        return fn

    return decorate


def _component(group: ComponentGroup, config_type: type[TypedBaseModel]) -> Decorator[..., Any]:
    _check_config(config_type, GROUPS[group].base_config)

    def decorate(fn: Generator[P, T]) -> Manager[P, T]:
        manager = _manager(fn)
        current_catalog().add(RegisteredComponent(group, config_type, manager))
        return manager

    return decorate


def _manager(fn: Generator[P, T]) -> Manager[P, T]:
    name: str = getattr(fn, "__qualname__", repr(fn))
    if not inspect.isasyncgenfunction(fn):
        raise RegistryError(
            f"{name} is not an async generator", hint="write `async def` and `yield` the built object exactly once"
        )
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError as error:
        raise RegistryError(
            f"{name}{inspect.signature(fn)} cannot be called with a configuration and a builder",
            hint=f"write `async def {name}(config, builder)`",
        ) from error
    return asynccontextmanager(fn)


def _check_config(config_type: Any, base: type[TypedBaseModel]) -> None:
    name: str = getattr(config_type, "__qualname__", repr(config_type))
    if not isinstance(config_type, type):
        raise RegistryError(
            f"a decorator got {name} where a {base.__name__} class was expected",
            hint="write `@register_…(config_type=MyConfig)`, with the class of the configuration",
        )
    if not issubclass(config_type, base):
        raise RegistryError(f"{name} is not a {base.__name__}", hint=f"derive it from {base.__name__}")
    if config_type.static_type() is None:
        raise RegistryError(f"{name} has no type name", hint=f'write `class {name}({base.__name__}, name="…")`')
