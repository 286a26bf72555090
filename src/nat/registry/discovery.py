"""Import plug-ins through their entry points, and record which of them failed to import and why.

The module of an entry point is usually a list of imports, each of which registers a component. If one of these imports
fails, the others are still imported one by one.
"""

import ast
import importlib
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

from nat.errors import describe_error
from nat.registry.replacements import replacement_for

logger = logging.getLogger(__name__)

GROUPS = ("nat.components", "nat.plugins")
"""Entry-point groups; importing the module runs its decorators. Our own components use the first group too."""


@dataclass(frozen=True)
class PluginFailure:
    """One module of a plug-in that could not be imported."""

    name: str
    module: str
    error: str


failures: list[PluginFailure] = []
"""Of this process; the error for a missing `_type` lists them."""


def explain_failures() -> str:
    """One sentence per failed plug-in, with a leading blank; empty if none failed."""
    return "".join(f" The plug-in '{f.name}' failed to import ({f.module}): {f.error}." for f in failures)


_imported: set[tuple[str, str]] = set()
"""Entry points of this process that were imported or failed to."""


def discover_components(entry_points: Callable[[], Iterable[EntryPoint]] | None = None) -> None:
    """Import each plug-in once per process; failures are recorded."""
    for point in (entry_points or installed_entry_points)():
        if (point.name, point.value) in _imported:
            continue
        _imported.add((point.name, point.value))
        try:
            point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in that fails must not stop the others
            _record(point.name, point.value, error)
            import_one_by_one(point.value.partition(":")[0], partial(_record, point.name))


def _record(plugin: str, module: str, error: BaseException) -> None:
    """Record a failure once: a module and the module that imports it fail with the same error."""
    message = describe_error(error) + replacement_for(error)
    if any(known.name == plugin and known.error == message for known in failures):
        return
    failures.append(PluginFailure(plugin, module, message))
    logger.warning("the plug-in '%s' (%s) failed to import: %s", plugin, module, message)
    logger.debug("its traceback", exc_info=error)


def installed_entry_points() -> list[EntryPoint]:
    """The entry points of all installed distributions, our own first."""
    points = [point for group in GROUPS for point in importlib.metadata.entry_points(group=group)]
    return sorted(points, key=lambda p: (p.value != "nat.plugins.register", p.name))


def import_one_by_one(module: str, failed: Callable[[str, BaseException], None]) -> None:
    """Import each module that `module` imports at its top level; call `failed` for those that raise."""
    for name in _imports(module):
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in that fails must not stop the others
            failed(name, error)


def _imports(module: str) -> Iterator[str]:
    try:
        spec = importlib.util.find_spec(module)
    except (Exception, SystemExit):  # noqa: BLE001 - the package around it cannot be imported either
        return
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return
    package = module if spec.submodule_search_locations is not None else module.rpartition(".")[0]
    for statement in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from _imported_from(statement, package)


def _imported_from(statement: ast.ImportFrom, package: str) -> Iterator[str]:
    parent = "." * statement.level + (statement.module or "")
    source = importlib.util.resolve_name(parent, package) if statement.level else parent
    yield source
    for alias in statement.names:
        # `from package import name`: `name` is a submodule, or an attribute of the package, which is already imported.
        try:
            found = importlib.util.find_spec(f"{source}.{alias.name}")
        except (ImportError, AttributeError):
            continue
        if found is not None:
            yield found.name


STAYS_IN_THE_TOOLKIT = "a workflow with it is trained in the toolkit's environment: docs/from/nat.md"
"""What to do with a part of the toolkit that this project does not have."""
_TOOLKIT_WORKFLOWS = frozenset(
    (
        *("auto_memory_agent", "react_agent", "reasoning_agent", "responses_api_agent", "rewoo_agent", "router_agent"),
        *("tool_calling_agent", "langgraph_wrapper", "parallel_executor", "sequential_executor", "chat_completion"),
        *("nat_retriever", "milvus_document_search", "nvidia_rag", "wiki_search", "tavily_internet_search"),
        *("code_execution", "code_generation", "current_datetime", "current_timezone", "mcp_client"),
    )
)
"""Functions and agents of the toolkit's release 1.9 that a workflow of its users names."""


def explain_unknown(name: str) -> str:
    """Where a component of this name may be, with a leading blank."""
    if name in _TOOLKIT_WORKFLOWS:
        return f" '{name}' is a part of the toolkit: {STAYS_IN_THE_TOOLKIT}"
    return f"{explain_failures()} If it is yours, name its Python file under `imports`, or by --import."
