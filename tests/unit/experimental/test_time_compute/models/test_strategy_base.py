import pytest

from nat.experimental.test_time_compute.models.stage_enums import PipelineTypeEnum, StageTypeEnum
from nat.experimental.test_time_compute.models.strategy_base import StrategyBase


def test_a_pipeline_that_is_not_supported_is_refused():
    """The error names the supported pipelines."""

    class Picky(StrategyBase):
        async def build_components(self, builder): ...

        async def ainvoke(self, items, original_prompt=None, agent_context=None, **kwargs):
            return items

        def supported_pipeline_types(self):
            return [PipelineTypeEnum.CUSTOM]

        def stage_type(self):
            return StageTypeEnum.SCORING

    with pytest.raises(ValueError, match=r"does not support pipelines of the type tool_use\n.*: custom"):
        Picky(None).set_pipeline_type(PipelineTypeEnum.TOOL_USE)
