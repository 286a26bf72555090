"""Imports inside functions have a reason and hide no circle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

SOURCE = Path(__file__).parents[2] / "src" / "nat"
INDENTED = re.compile(r"^[ \t]+(import|from) ", re.MULTILINE)


def function_imports() -> Iterator[tuple[str, str]]:
    """Place and line of every import inside a function."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not INDENTED.search(text):
            continue  # every process of pytest lists the imports, and parsing takes a second
        lines = text.splitlines()
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        yield f"{path.relative_to(SOURCE)}:{node.lineno}", lines[node.lineno - 1]


@pytest.mark.parametrize(("place", "line"), sorted(set(function_imports())))
def test_an_import_inside_a_function_has_a_reason(place, line):
    """An import inside a function has a reason: start-up time, an optional package, or a rarely needed library."""
    _, _, reason = line.partition("# noqa: PLC0415 - ")
    assert reason, f"{place}: move the import to the top, or add the reason"


def test_the_contract_against_circles_sees_imports_inside_functions():
    """The graph that import-linter checks contains the imports inside functions."""
    graph = grimp.build_graph("nat", cache_dir=None)
    assert graph.direct_import_exists(importer="nat.plugins.llms.register", imported="nat.plugins.llms.client")
