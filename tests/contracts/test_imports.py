"""The import paths that other people's plug-ins use."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from nat.promised import promised

NAMES = [(module, name) for module, names in promised().items() for name in names]

MOVED = [
    ("nat.eval.evaluate:EvaluationRun", "nat.plugins.eval.runtime.evaluate:EvaluationRun"),
    ("nat.eval.config:EvaluationRunConfig", "nat.data_models.evaluate_runtime:EvaluationRunConfig"),
    ("nat.eval.config:EvaluationRunOutput", "nat.data_models.evaluate_runtime:EvaluationRunOutput"),
    ("nat.eval.evaluator.evaluator_model:EvalInput", "nat.data_models.evaluator:EvalInput"),
    ("nat.eval.evaluator.evaluator_model:EvalOutput", "nat.plugins.eval.data_models.evaluator_io:EvalOutput"),
    ("nat.eval.evaluator.base_evaluator:BaseEvaluator", "nat.plugins.eval.evaluator.base_evaluator:BaseEvaluator"),
    ("nat.data_models.evaluate:EvalGeneralConfig", "nat.data_models.evaluate_config:EvalGeneralConfig"),
]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{m}.{n}" for m, n in NAMES])
def test_a_plug_in_can_import(module, name):
    """Every import of the guide and of the toolkit's finetuning surface works."""
    assert getattr(import_module(module), name) is not None


@pytest.mark.parametrize(("earlier", "later"), MOVED)
def test_both_paths_give_the_same_object(earlier, later):
    """A class that moved in the toolkit is the same class under both paths, so `isinstance` works."""
    assert found(earlier) is found(later)


def found(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


SOURCE = Path(__file__).parents[2] / "src" / "nat"
RE_EXPORTING = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if path.name != "__init__.py"
    and "__all__" in path.read_text("utf-8")
    and all(
        isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign) for node in ast.parse(path.read_text("utf-8")).body
    )
]


@pytest.mark.parametrize("path", RE_EXPORTING, ids=lambda path: str(path.relative_to(SOURCE)))
def test_an_alias_says_where_the_code_is(path):
    """All aliases have the same docstring, which names the module that they import from."""
    tree = ast.parse(path.read_text("utf-8"))
    modules = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    [source] = modules - {"nat.registry.replacements"}  # a `__getattr__` that refuses the toolkit's other names
    assert ast.get_docstring(tree) == f"Alias for plug-ins: the code is in `{source}`."
