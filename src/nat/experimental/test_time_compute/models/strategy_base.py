"""The interface of a strategy, which implements one stage of a pipeline."""

from abc import ABC, abstractmethod
from typing import Any

from nat.builder.builder import Builder
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.errors import WorkflowError, one_of
from nat.experimental.test_time_compute.models.stage_enums import PipelineTypeEnum, StageTypeEnum
from nat.experimental.test_time_compute.models.ttc_item import TTCItem


class StrategyBase(ABC):
    """Abstract: items in, items out. Its build function, under `register_ttc_strategy`, yields it."""

    def __init__(self, config: TTCStrategyBaseConfig) -> None:
        self.config = config
        self.pipeline_type: PipelineTypeEnum | None = None

    @abstractmethod
    async def build_components(self, builder: Builder) -> None:
        """Take functions and LLMs from the builder; the build function calls it."""

    @abstractmethod
    async def ainvoke(
        self,
        items: list[TTCItem],
        original_prompt: str | None = None,
        agent_context: str | None = None,
        **kwargs: Any,
    ) -> list[TTCItem]:
        """Do the stage's work on the items."""

    @abstractmethod
    def supported_pipeline_types(self) -> list[PipelineTypeEnum]: ...

    @abstractmethod
    def stage_type(self) -> StageTypeEnum: ...

    def set_pipeline_type(self, pipeline_type: PipelineTypeEnum) -> None:
        """Called by `builder.get_ttc_strategy`; a pipeline that is not supported raises WorkflowError."""
        supported = self.supported_pipeline_types()
        if pipeline_type not in supported:
            raise WorkflowError(
                f"{type(self).__name__} does not support pipelines of the type {pipeline_type}",
                hint=f"request it with one of: {one_of(supported)}",
            )
        self.pipeline_type = pipeline_type
