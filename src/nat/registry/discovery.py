"""Import plug-ins through their entry points, and record which of them failed to import and why."""

import importlib.metadata
import logging
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from nat.errors import describe_error
from nat.registry.imports import replacement_for

logger = logging.getLogger(__name__)

GROUPS = ("nat.components", "nat.plugins")
"""Entry-point groups; importing the module runs its decorators. Our own components use the first group too."""


@dataclass(frozen=True)
class PluginFailure:
    """A plug-in that could not be imported."""

    name: str
    module: str
    error: str


failures: list[PluginFailure] = []
"""Of this process; the error for a missing `_type` lists them."""


def explain_failures() -> str:
    """One sentence per failed plug-in, with a leading blank; empty if none failed."""
    return "".join(f" The plug-in '{f.name}' failed to import ({f.module}): {f.error}." for f in failures)


def explain_unknown() -> str:
    """Where a component may be that no plug-in registers, with a leading blank."""
    return f"{explain_failures()} If it is yours, name its Python file under `imports`, or by --import."


_imported: set[tuple[str, str]] = set()
"""Entry points of this process that were imported or failed to."""


def discover_components() -> None:
    """Import each plug-in once per process; failures are recorded."""
    for point in installed_entry_points():
        if (point.name, point.value) in _imported:
            continue
        _imported.add((point.name, point.value))
        try:
            point.load()
        except (Exception, SystemExit) as error:
            failure = PluginFailure(point.name, point.value, describe_error(error) + replacement_for(error))
            failures.append(failure)
            logger.warning("the plug-in '%s' (%s) failed to import: %s", point.name, point.value, failure.error)
            logger.debug("its traceback", exc_info=error)


def installed_entry_points() -> list[EntryPoint]:
    """The entry points of all installed distributions, our own first."""
    points = [point for group in GROUPS for point in importlib.metadata.entry_points(group=group)]
    return sorted(points, key=lambda p: (p.value != "nat.plugins.register", p.name))
