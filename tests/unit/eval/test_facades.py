import importlib

import pytest


@pytest.mark.parametrize(
    ("ours", "other", "names"),
    [
        ("nat.eval.evaluate", "nat.plugins.eval.runtime.evaluate", ["EvaluationRun"]),
        ("nat.eval.config", "nat.data_models.evaluate_runtime", ["EvaluationRunConfig", "EvaluationRunOutput"]),
        ("nat.eval.evaluate", "nat.eval.config", ["EvaluationRunConfig", "EvaluationRunOutput"]),
        ("nat.eval.usage_stats", "nat.data_models.evaluate_runtime", ["UsageStats", "UsageStatsItem", "UsageStatsLLM"]),
        ("nat.eval.evaluator.evaluator_model", "nat.data_models.evaluator", ["EvalInput", "EvalInputItem"]),
        (
            "nat.eval.evaluator.evaluator_model",
            "nat.plugins.eval.data_models.evaluator_io",
            ["EvalOutput", "EvalOutputItem"],
        ),
        ("nat.eval.evaluator.base_evaluator", "nat.plugins.eval.evaluator.base_evaluator", ["BaseEvaluator"]),
    ],
)
def test_both_import_paths_give_the_same_class(ours, other, names):
    """Plug-ins of the older and of the newer toolkit import the same classes."""
    for name in names:
        assert getattr(importlib.import_module(ours), name) is getattr(importlib.import_module(other), name)
