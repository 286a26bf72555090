"""Import what can be imported of a plug-in's module that as a whole cannot: what it imports, one by one.

The module of an entry point is as a rule a list of imports, each of which registers a component. Where one of them
misses a name, the others are still of use.
"""

import ast
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path


def import_one_by_one(module: str, failed: Callable[[str, BaseException], None]) -> None:
    """Import each module that `module` imports at its top level; `failed` is told of those that cannot be."""
    for name in _imports(module):
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - other people's code; its failure is recorded
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
        # `from package import name`: a module of its own, or a name inside the package, which is imported by now.
        try:
            found = importlib.util.find_spec(f"{source}.{alias.name}")
        except (ImportError, AttributeError):
            continue
        if found is not None:
            yield found.name
