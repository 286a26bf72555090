"""What holds of the tests themselves."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "examples", "conformance")
CHECKS = ("raises", "warns", "fail")
"""What pytest offers beside the statement."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> list[tuple[str, Function]]:
    """Every function of the tests, with its place."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    return [
        (f"{file.relative_to(ROOT)}::{node.name}", node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, Function)
    ]


def asserts(function: Function, helpers: set[str]) -> bool:
    """True if it asserts itself, or calls a helper that does."""
    names = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute | ast.Name)
    }
    return (
        any(isinstance(node, ast.Assert) for node in ast.walk(function))
        or not names.isdisjoint(helpers.union(CHECKS))
        or any(name.startswith("assert_") for name in names)
    )


def test_every_test_asserts_something():
    """A test that only runs code proves that nothing is raised, and nobody sees what it was meant to prove."""
    known = functions()
    helpers = {f.name for _, f in known if not f.name.startswith("test_") and asserts(f, set())}
    silent = [place for place, f in known if f.name.startswith("test_") and not asserts(f, helpers)]
    assert silent == []
