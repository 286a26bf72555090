"""The built-in strategies: select candidates by their scores."""

from abc import abstractmethod
from math import isnan
from typing import Any

from nat.builder.builder import Builder
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.errors import WorkflowError
from nat.experimental.test_time_compute.models.stage_enums import PipelineTypeEnum, StageTypeEnum
from nat.experimental.test_time_compute.models.strategy_base import StrategyBase
from nat.experimental.test_time_compute.models.ttc_item import TTCItem
from nat.registry.decorators import from_config, register_ttc_strategy


class BestOfNSelectionConfig(TTCStrategyBaseConfig, name="best_of_n_selection"):
    """Selects the candidate with the highest score, the first one of equals."""


class ThresholdSelectionConfig(TTCStrategyBaseConfig, name="threshold_selection"):
    """Selects the candidates with at least a given score; candidates without a score are left out."""

    threshold: float = 5.0
    """The lowest score to select."""


class Selector(StrategyBase):
    """A selection by scores alone, for every pipeline."""

    async def build_components(self, builder: Builder) -> None:
        """Needs no other component."""

    def supported_pipeline_types(self) -> list[PipelineTypeEnum]:
        return list(PipelineTypeEnum)

    def stage_type(self) -> StageTypeEnum:
        return StageTypeEnum.SELECTION

    async def ainvoke(
        self,
        items: list[TTCItem],
        original_prompt: str | None = None,
        agent_context: str | None = None,
        **kwargs: Any,
    ) -> list[TTCItem]:
        return self.select(items)

    @abstractmethod
    def select(self, items: list[TTCItem]) -> list[TTCItem]: ...


class BestOfNSelector(Selector):
    """Raises WorkflowError if there is nothing to compare."""

    def select(self, items: list[TTCItem]) -> list[TTCItem]:
        if not items:
            raise WorkflowError(
                "best_of_n_selection: there is no candidate to select", hint="let the search return at least one"
            )
        scores = [item.score for item in items if item.score is not None and not isnan(item.score)]
        if len(scores) < len(items):
            raise WorkflowError(
                f"best_of_n_selection: {len(items) - len(scores)} of {len(items)} candidates have no score",
                hint="let a scoring strategy set the `score` of every candidate before the selection",
            )
        return [items[scores.index(max(scores))]]


class ThresholdSelector(Selector):
    """May select nothing."""

    config: ThresholdSelectionConfig

    def select(self, items: list[TTCItem]) -> list[TTCItem]:
        return [item for item in items if item.score is not None and item.score >= self.config.threshold]


register_ttc_strategy(config_type=BestOfNSelectionConfig)(from_config(BestOfNSelector))
register_ttc_strategy(config_type=ThresholdSelectionConfig)(from_config(ThresholdSelector))
