"""`json_path_score`: the score is a number in the workflow's output."""

from collections.abc import AsyncGenerator

from pydantic import field_validator

from nat.builder.builder import EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.data_models.score import score_problem
from nat.errors import EvaluationError
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.eval.result_path import compile_path, value_at
from nat.registry.decorators import register_evaluator


class JsonPathScoreConfig(EvaluatorBaseConfig, name="json_path_score"):
    """The score is a part of the workflow's output, which is a record or JSON text."""

    path: str = "$.score"
    """JSON path of the score, which must be a number, true or false. It must be computed by your code: a model that
    writes the output would write its own score."""

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, path: str) -> str:
        compile_path(path)
        return path


class JsonPathScoreEvaluator(BaseEvaluator):
    """Raises an error if the output has no number at the path; 0 would be a guess."""

    def __init__(self, config: JsonPathScoreConfig) -> None:
        super().__init__(tqdm_desc="json_path_score")
        self._path = compile_path(config.path)
        self._text = config.path

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        try:
            score = value_at(self._path, item.output_obj)
        except LookupError as error:
            raise EvaluationError(f"{self._text}: {error}") from error
        if problem := score_problem(score):
            raise EvaluationError(f"{self._text}: {problem}")
        return EvalOutputItem(id=item.id, score=float(score), reasoning={"path": self._text})


@register_evaluator(config_type=JsonPathScoreConfig)
async def json_path_score(config: JsonPathScoreConfig, _builder: EvalBuilder) -> AsyncGenerator[EvaluatorInfo, None]:
    """Build the evaluator."""
    evaluator = JsonPathScoreEvaluator(config)
    yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description=f"The output's own {config.path}")
