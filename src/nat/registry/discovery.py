"""Find plug-ins through their entry points, and refuse an environment in which `nat` would be two things."""

import importlib.metadata
import logging
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, PackageNotFoundError

from nat.errors import NatError, describe_error
from nat.registry.elsewhere import instead_of
from nat.registry.plugin_failures import PluginFailure, failures
from nat.registry.salvage import import_one_by_one

logger = logging.getLogger(__name__)

GROUPS = ("nat.components", "nat.plugins")
"""Entry-point groups; the value is a module whose import runs the decorators. Ours comes by the same way."""

CONFLICTING = ("nvidia-nat", "nvidia-nat-core")
"""Distributions that install files into the same `nat` package; their plug-in distributions do not."""

_seen: set[tuple[str, str]] = set()


def discover_components(entry_points: Callable[[], Iterable[EntryPoint]] | None = None) -> None:
    """Import each component module once per process; what fails is remembered for the message of a missing type."""
    for point in (entry_points or installed_entry_points)():
        if (point.name, point.value) in _seen:
            continue
        _seen.add((point.name, point.value))
        try:
            point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - other people's code; its failure is recorded
            # A plug-in is other people's code: one that cannot be imported must not take the others down.
            _record(point.name, point.value, error)
            import_one_by_one(point.value.partition(":")[0], partial(_record, point.name))


def _record(plugin: str, module: str, error: BaseException) -> None:
    """Remember the failure once: what a module misses, the module that imports it misses too."""
    told = describe_error(error) + instead_of(error)
    if any(known.name == plugin and known.error == told for known in failures):
        return
    failures.append(PluginFailure(plugin, module, told))
    logger.warning("the plug-in '%s' (%s) failed to import: %s", plugin, module, told)
    logger.debug("its traceback", exc_info=error)


def installed_entry_points() -> list[EntryPoint]:
    """The entry points of all installed distributions, our own first."""
    points = [point for group in GROUPS for point in importlib.metadata.entry_points(group=group)]
    return sorted(points, key=lambda p: (p.value != "nat.plugins.register", p.name))


def check_environment(version: Callable[[str], str] = importlib.metadata.version) -> None:
    """Raise NatError if a distribution is installed whose files would mix with ours on disk."""
    for name in CONFLICTING:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        raise NatError(
            f"{name} {found} is installed in the same environment; both bring the package `nat`, and their files mix",
            hint=f"pip uninstall {name}, then reinstall nat-finetuning-harness; or use a fresh virtual environment",
        )
