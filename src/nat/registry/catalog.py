"""All registered components: a generic registry, one per component group, and the catalog of a process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig
from nat.data_models.tracker import TrackerConfig
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.errors import RegistryError, did_you_mean, one_of
from nat.registry.discovery import discover_components, explain_unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries by full name, `package/name`; a short name works while only one package uses it."""

    def __init__(self, noun: str) -> None:
        """`noun` names an entry in messages."""
        self.noun = noun
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Register `entry`; a duplicate name raises RegistryError."""
        if name in self._entries:
            raise RegistryError(
                f"the {self.noun} '{name}' is already registered",
                hint="give one of the two another name=, or uninstall one of the two packages",
            )
        self._entries[name] = entry

    def get(self, name: str) -> T:
        """The entry of a full or short name; unknown or ambiguous raises RegistryError."""
        found = [name] if name in self._entries else [full for full in self._entries if short_name(full) == name]
        if len(found) == 1:
            return self._entries[found[0]]
        if found:
            raise RegistryError(
                f"'{name}' is the {self.noun} of several packages", hint=f"write one of: {one_of(found)}"
            )
        raise RegistryError(
            f"'{name}' is not registered as {self.noun}.{did_you_mean(name, self.names())}"
            f" Registered: {one_of(self.names())}.{explain_unknown()}"
        )

    def names(self) -> list[str]:
        """The names for a YAML: short where unique, else full."""
        shorts = [short_name(full) for full in self._entries]
        return sorted(s if shorts.count(s) == 1 else full for s, full in zip(shorts, self._entries, strict=True))

    def has(self, name: str | None) -> bool:
        """True if a full name or an unambiguous short one is registered."""
        return name in self._entries or name in self.names()

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def short_name(full: str) -> str:
    """`package/name` without its package."""
    return full.rpartition("/")[2]


BuildFn = Callable[[Any, Any], AbstractAsyncContextManager[Any]]
"""`(config, builder)` → an async context manager that yields the component."""


class Group(NamedTuple):
    """What the components of a section have in common."""

    noun: str
    """One of them, in messages."""
    base_config: type[TypedBaseModel]
    """The base class of their configs."""


GROUPS: dict[ComponentGroup, Group] = {
    ComponentGroup.LLMS: Group("LLM provider", LLMBaseConfig),
    ComponentGroup.FUNCTIONS: Group("function", FunctionBaseConfig),
    ComponentGroup.EVALUATORS: Group("evaluator", EvaluatorBaseConfig),
    ComponentGroup.DATASETS: Group("dataset loader", DatasetBaseConfig),
    ComponentGroup.TTC_STRATEGIES: Group("TTC strategy", TTCStrategyBaseConfig),
    ComponentGroup.TRAJECTORY_BUILDERS: Group("trajectory builder", TrajectoryBuilderConfig),
    ComponentGroup.TRAINER_ADAPTERS: Group("trainer adapter", TrainerAdapterConfig),
    ComponentGroup.TRAINERS: Group("trainer", TrainerConfig),
    ComponentGroup.EVAL_CALLBACKS: Group("exporter of traces or callback of evaluations", TelemetryExporterBaseConfig),
    ComponentGroup.TRACKERS: Group("tracker", TrackerConfig),
}


@dataclass(frozen=True)
class RegisteredComponent:
    """A config class and its build function."""

    group: ComponentGroup
    config_type: type[TypedBaseModel]
    build_fn: BuildFn

    @property
    def full_type(self) -> str:
        return self.config_type.static_full_type() or ""

    @property
    def local_name(self) -> str:
        return self.config_type.static_type() or ""

    @property
    def module_name(self) -> str:
        return self.config_type.__module__


class Catalog:
    """Components of every group, and LLM clients and tool wrappers of every framework."""

    def __init__(self) -> None:
        self.components = {group: Registry[RegisteredComponent](each.noun) for group, each in GROUPS.items()}
        self.llm_clients: dict[str, Registry[BuildFn]] = {}
        self.tool_wrappers = Registry[Callable[..., Any]]("tool wrapper")

    def group_of(self, base: Any) -> ComponentGroup | None:
        """The group whose configs have this base class; None for every other class."""
        return next((group for group, each in GROUPS.items() if each.base_config is base), None)

    def component_of(self, group: ComponentGroup, config: TypedBaseModel) -> RegisteredComponent:
        """The component that builds a config."""
        return self.components[group].get(config.static_full_type() or type(config).__name__)

    def llm_client(self, config_type: type[TypedBaseModel], wrapper_type: str) -> BuildFn:
        """The client of a framework for a config class; a subclass is served by its parent's client."""
        classes = [each for each in config_type.__mro__ if issubclass(each, TypedBaseModel)]
        names = [name for each in classes if (name := each.static_full_type()) is not None]
        known = {wrapper: [n for n in names if n in clients] for wrapper, clients in self.llm_clients.items()}
        if known.get(wrapper_type):
            return self.llm_clients[wrapper_type].get(known[wrapper_type][0])
        raise RegistryError(
            f"no client of wrapper_type '{wrapper_type}' is registered for the LLM type '{config_type.static_type()}'."
            f" Wrapper types for it: {one_of(each for each in known if known[each])}.{explain_unknown()}",
            hint=f"use one of these, or register a client for '{wrapper_type}' with `register_llm_client`",
        )


_catalogs = [Catalog()]


def current_catalog() -> Catalog:
    """The catalog that decorators write, and that loading and building read."""
    return _catalogs[-1]


@contextmanager
def pushed_catalog() -> Iterator[Catalog]:
    """Use a copy of the current catalog in the block; what the block registers is discarded."""
    discover_components()  # before the copy: built-in components belong to the process, not to the block
    _catalogs.append(deepcopy(current_catalog()))
    try:
        yield current_catalog()
    finally:
        _catalogs.pop()
