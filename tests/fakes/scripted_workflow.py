"""A workflow that calls a function of the test, with a configuration on disk.

scripted = ScriptedWorkflow(tmp_path, answer, rows=[{"question": "q", "answer": "a"}])
with scripted.registered():
    output = await EvaluationRun(EvaluationRunConfig(config_file=scripted.config_file)).run_and_evaluate()
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.data_models.evaluator import EvalInput, EvalOutput, EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import register_evaluator, register_function
from nat.registry.discovery import discover_components

Answer = Callable[[str], Awaitable[Any]]
Evaluate = Callable[[EvalInput], Awaitable[EvalOutput]]


class ScriptedConfig(FunctionBaseConfig, name="scripted"):
    """The workflow's type in the YAML."""

    tone: str = "plain"


class ScriptedEvaluatorConfig(EvaluatorBaseConfig, name="scripted_evaluator"):
    """The evaluator's type in the YAML."""


class ScriptedWorkflow:
    """Counts how often it was built and closed; change `config` before use; `config_file` is its YAML."""

    def __init__(self, folder: Path, answer: Answer, rows: list[dict[str, Any]], evaluate: Evaluate | None = None):
        self.answer = answer
        self.evaluate = evaluate
        self.function: Callable[..., Any] | None = None
        """Replaces `answer` by a function with its own signature."""
        self.built = 0
        self.closed = 0
        self.tones: list[str] = []
        self.folder = folder
        self.reports = folder / "reports"
        self.write_rows("data.json", rows)
        self.config: dict[str, Any] = {
            "workflow": {"_type": "scripted"},
            "eval": {
                "general": {
                    "output_dir": str(self.reports),
                    "dataset": {"_type": "json", "file_path": str(folder / "data.json")},
                },
                "evaluators": {"match": {"_type": "exact_match"}},
            },
        }
        if evaluate is not None:
            self.config["eval"]["evaluators"]["scripted"] = {"_type": "scripted_evaluator"}

    @property
    def general(self) -> dict[str, Any]:
        return self.config["eval"]["general"]

    @property
    def config_file(self) -> Path:
        path = self.folder / "config.yml"
        path.write_text(yaml.safe_dump(self.config))
        return path

    def write_rows(self, name: str, rows: list[dict[str, Any]]) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(rows))
        return path

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Register workflow and evaluator until the block ends."""
        discover_components()
        with pushed_catalog():
            register_function(config_type=ScriptedConfig)(self._build)
            if self.evaluate is not None:
                register_evaluator(config_type=ScriptedEvaluatorConfig)(self._build_evaluator)
            yield

    async def _build(self, config, builder):
        self.built += 1
        self.tones.append(config.tone)

        async def answer(question: str) -> Any:
            return await self.answer(question)

        try:
            yield FunctionInfo.from_fn(self.function or answer, description="scripted")
        finally:
            self.closed += 1

    async def _build_evaluator(self, config, builder):
        yield EvaluatorInfo(config=config, evaluate_fn=self.evaluate, description="scripted")
