"""All registries of a process, and how a test gets its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.errors import RegistryError
from nat.registry.component import NOUNS, BuildFn, RegisteredComponent
from nat.registry.discovery import discover_components
from nat.registry.plugin_failures import explain_failures
from nat.registry.registry import Registry
from nat.registry.suggest import one_of


class Catalog:
    """The components of every group, and the LLM clients and tool wrappers of every framework."""

    def __init__(self) -> None:
        self.components = {
            group: Registry[RegisteredComponent](noun, explain=explain_failures) for group, noun in NOUNS.items()
        }
        self.llm_clients: dict[str, Registry[BuildFn]] = {}
        self.tool_wrappers = Registry[Callable[..., Any]]("tool wrapper", explain=explain_failures)

    def add(self, component: RegisteredComponent) -> None:
        self.components[component.group].add(component.full_type, component)

    def add_llm_client(self, config_type: type[TypedBaseModel], wrapper_type: str, build_fn: BuildFn) -> None:
        registry = self.llm_clients.setdefault(wrapper_type, Registry(f"{wrapper_type} client for the LLM"))
        registry.add(config_type.static_full_type() or "", build_fn)

    def component(self, group: ComponentGroup, name: str) -> RegisteredComponent:
        """The component that a `_type` names."""
        return self.components[group].get(name)

    def component_of(self, group: ComponentGroup, config: TypedBaseModel) -> RegisteredComponent:
        """The component that builds a config."""
        return self.components[group].get(config.static_full_type() or type(config).__name__)

    def llm_client(self, config_type: type[TypedBaseModel], wrapper_type: str) -> BuildFn:
        """The client of a framework for a config class; a subclass is served by its parent's client."""
        registry = self.llm_clients.get(wrapper_type)
        for name in _full_types(config_type) if registry is not None else ():
            if registry is not None and name in registry:
                return registry.get(name)
        wrappers = [w for w, clients in self.llm_clients.items() if any(n in clients for n in _full_types(config_type))]
        raise RegistryError(
            f"no client of wrapper_type '{wrapper_type}' is registered for the LLM type '{config_type.static_type()}'."
            f" Wrapper types for it: {one_of(wrappers)}.{explain_failures()}",
            hint=f"use one of these, or register a client for '{wrapper_type}' with `register_llm_client`",
        )

    def copy(self) -> "Catalog":
        """A catalog with the same entries, which can grow on its own."""
        twin = Catalog()
        twin.components = {group: registry.copy() for group, registry in self.components.items()}
        twin.llm_clients = {wrapper: registry.copy() for wrapper, registry in self.llm_clients.items()}
        twin.tool_wrappers = self.tool_wrappers.copy()
        return twin


_process_catalog = Catalog()
_pushed: ContextVar[Catalog | None] = ContextVar("nat_catalog", default=None)


def current_catalog() -> Catalog:
    """The catalog that the decorators write to and that loading and building read."""
    return _pushed.get() or _process_catalog


@contextmanager
def pushed_catalog() -> Iterator[Catalog]:
    """A copy of the current catalog, until the block ends; what is registered meanwhile is forgotten."""
    discover_components()  # now, so that the built-in components are registered for the process and not for the block
    token = _pushed.set(current_catalog().copy())
    try:
        yield current_catalog()
    finally:
        _pushed.reset(token)


def _full_types(config_type: type[TypedBaseModel]) -> list[str]:
    classes = [c for c in config_type.__mro__ if issubclass(c, TypedBaseModel)]
    return [name for name in (c.static_full_type() for c in classes) if name is not None]
