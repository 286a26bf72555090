"""The function that is evaluated and trained, its dataset, its evaluator and its callback."""

import pandas as pd
from pydantic import Field

from nat.data_models.evaluator import EvalInputItem
from nat.plugin_api import (
    Builder,
    DatasetLoaderInfo,
    EvalBuilder,
    EvalDatasetBaseConfig,
    EvaluatorBaseConfig,
    EvaluatorInfo,
    FunctionBaseConfig,
    FunctionInfo,
    LLMFrameworkEnum,
    LLMRef,
    OptionalSecretStr,
    TelemetryExporterBaseConfig,
    get_secret_value,
    register_dataset_loader,
    register_eval_callback,
    register_evaluator,
    register_function,
)
from nat.plugins.eval.data_models.evaluator_io import EvalOutputItem
from nat.plugins.eval.evaluator.base_evaluator import BaseEvaluator


class DialAgentConfig(FunctionBaseConfig, name="dial_agent"):
    """Asks the dial."""

    llm_name: LLMRef = Field(description="The dial.")


@register_function(config_type=DialAgentConfig, framework_wrappers=[LLMFrameworkEnum.LANGCHAIN])
async def dial_agent(config: DialAgentConfig, builder: Builder):
    dial = await builder.get_llm(config.llm_name, wrapper_type=LLMFrameworkEnum.LANGCHAIN)

    async def answer(question: str) -> str:
        """Answer a question."""
        return dial.ask(question)

    yield FunctionInfo.from_fn(answer, description=answer.__doc__)


class PipeSeparatedConfig(EvalDatasetBaseConfig, name="pipes"):
    """Columns between pipes."""

    separator: str = Field(default="|", description="What stands between two columns.")


@register_dataset_loader(config_type=PipeSeparatedConfig)
async def pipe_separated(config: PipeSeparatedConfig, builder: EvalBuilder):
    def load(file_path, **kwargs):
        return pd.read_csv(file_path, sep=config.separator, **kwargs)

    yield DatasetLoaderInfo(config=config, load_fn=load, description="Pipe-separated columns")


class SameWordConfig(EvaluatorBaseConfig, name="same_word"):
    """1 for the expected word, else 0."""


class SameWordEvaluator(BaseEvaluator):
    def __init__(self, max_concurrency: int = 8):
        super().__init__(max_concurrency, tqdm_desc="Comparing words")
        self.ids = []

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        self.ids.append(item.id)
        score = 1.0 if item.output_obj == item.expected_output_obj else 0.0
        return EvalOutputItem(id=item.id, score=score, reasoning=f"expected {item.expected_output_obj}")


@register_evaluator(config_type=SameWordConfig)
async def same_word(config: SameWordConfig, builder: EvalBuilder):
    evaluator = SameWordEvaluator(builder.get_max_concurrency())
    yield EvaluatorInfo(config=config, evaluate_fn=evaluator.evaluate, description="Exact words")


class ScoreboardConfig(TelemetryExporterBaseConfig, name="scoreboard"):
    """Where results are shown."""

    project: str
    api_key: OptionalSecretStr = None


class Scoreboard:
    shown: list = []  # noqa: RUF012 - as a plug-in's author writes it

    def __init__(self, project: str, key: str | None):
        self.project, self.key = project, key

    def on_eval_complete(self, result):
        scores = {item.item_id: item.scores for item in result.items}
        self.shown.append((self.project, self.key, result.metric_scores, scores))


@register_eval_callback(config_type=ScoreboardConfig)
def scoreboard(config: ScoreboardConfig, **kwargs):
    return Scoreboard(config.project, get_secret_value(config.api_key))
