"""The import paths that other people's plug-ins use."""

from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest

PROMISED = run_path(str(Path(__file__).parents[2] / "docs" / "promised.py"))["promised"]()
NAMES = [(module, name) for module, names in PROMISED.items() for name in names]

MOVED = [
    ("nat.eval.evaluate:EvaluationRun", "nat.plugins.eval.runtime.evaluate:EvaluationRun"),
    ("nat.eval.config:EvaluationRunConfig", "nat.data_models.evaluate_runtime:EvaluationRunConfig"),
    ("nat.eval.config:EvaluationRunOutput", "nat.data_models.evaluate_runtime:EvaluationRunOutput"),
    ("nat.eval.evaluator.evaluator_model:EvalInput", "nat.data_models.evaluator:EvalInput"),
    ("nat.eval.evaluator.evaluator_model:EvalOutput", "nat.plugins.eval.data_models.evaluator_io:EvalOutput"),
    ("nat.eval.evaluator.base_evaluator:BaseEvaluator", "nat.plugins.eval.evaluator.base_evaluator:BaseEvaluator"),
    ("nat.data_models.evaluate:EvalGeneralConfig", "nat.data_models.evaluate_config:EvalGeneralConfig"),
]


def test_a_plug_in_can_import():
    """Every import of the guide and of the toolkit's finetuning surface works."""
    missing = [f"{module}.{name}" for module, name in NAMES if not hasattr(import_module(module), name)]
    assert missing == []


@pytest.mark.parametrize(("earlier", "later"), MOVED)
def test_both_paths_give_the_same_object(earlier, later):
    """A class that moved in the toolkit is the same class under both paths, so `isinstance` works."""
    assert found(earlier) is found(later)


def found(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
