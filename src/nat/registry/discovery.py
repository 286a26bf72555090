"""Import plug-ins through their entry points, and record which of them failed to import and why."""

import importlib.metadata
import logging
from importlib.metadata import EntryPoint

from nat.registry.imports import import_problem

logger = logging.getLogger(__name__)

_ENTRY_POINTS = ("nat.components", "nat.plugins")
"""Groups; importing the module runs its decorators. Our own components use the first group too."""

failures: list[str] = []
"""A sentence for each plug-in of this process that could not be imported; the error for a missing `_type` has them."""

_imported: set[EntryPoint] = set()
"""Entry points of this process that were imported or failed to."""


def explain_unknown() -> str:
    """Where a component may be that no plug-in registers, with a leading blank."""
    return " ".join(["", *failures, "If it is yours, name its Python file under `imports`, or by --import."])


def discover_components() -> None:
    """Import each plug-in once per process; failures are recorded."""
    for point in installed_entry_points():
        if point in _imported:
            continue
        _imported.add(point)
        try:
            point.load()
        except (Exception, SystemExit) as error:
            failures.append(f"The plug-in '{point.name}' failed to import ({point.value}): {import_problem(error)}.")
            logger.warning(failures[-1])
            logger.debug("its traceback", exc_info=error)


def installed_entry_points() -> list[EntryPoint]:
    """The entry points of all installed distributions, our own first."""
    points = [point for group in _ENTRY_POINTS for point in importlib.metadata.entry_points(group=group)]
    return sorted(points, key=lambda p: (p.value != "nat.plugins.register", p.name))
