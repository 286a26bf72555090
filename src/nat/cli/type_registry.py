"""The import path of plug-ins for the registry."""

from collections.abc import Iterator
from contextlib import contextmanager

from nat.registry.catalog import Catalog, current_catalog, pushed_catalog
from nat.registry.catalog import RegisteredComponent as RegisteredInfo

__all__ = ["GlobalTypeRegistry", "RegisteredInfo", "TypeRegistry"]

TypeRegistry = Catalog


class GlobalTypeRegistry:
    """The registry that decorators write to."""

    @staticmethod
    def get() -> Catalog:
        return current_catalog()

    @staticmethod
    @contextmanager
    def push() -> Iterator[Catalog]:
        """Use a copy until the block ends; components that are registered in it are then removed."""
        with pushed_catalog() as catalog:
            yield catalog
