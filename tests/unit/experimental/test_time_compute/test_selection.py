import math

import pytest

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config import parse_config
from nat.errors import WorkflowError
from nat.experimental.test_time_compute.models.stage_enums import PipelineTypeEnum, StageTypeEnum
from nat.experimental.test_time_compute.models.ttc_item import TTCItem

STRATEGIES = {
    "ttc_strategies": {
        "best": {"_type": "best_of_n_selection"},
        "good": {"_type": "threshold_selection", "threshold": 0.5},
        "default": {"_type": "threshold_selection"},
    }
}


async def strategy(name, pipeline=PipelineTypeEnum.AGENT_EXECUTION, stage=StageTypeEnum.SELECTION):
    async with WorkflowBuilder.from_config(parse_config(STRATEGIES)) as builder:
        return await builder.get_ttc_strategy(strategy_name=name, pipeline_type=pipeline, stage_type=stage)


def items(*scores):
    return [TTCItem(name=str(number), score=score) for number, score in enumerate(scores)]


def names(selected):
    return [item.name for item in selected]


async def test_best_of_n_selects_the_highest_score():
    """The highest score wins, and of equal ones the first."""
    best = await strategy("best")
    assert names(await best.ainvoke(items(0.1, 0.9, 0.9, -1.0), original_prompt="p", agent_context="c")) == ["1"]


@pytest.mark.parametrize(
    ("scores", "seen"), [((0.5, None), "1 of 2"), ((math.nan, 0.1), "1 of 2"), ((), "no candidate")]
)
async def test_best_of_n_needs_scores(scores, seen):
    """A candidate without a score, or with NaN, cannot be compared; without candidates there is nothing to select."""
    with pytest.raises(WorkflowError, match=seen):
        await (await strategy("best")).ainvoke(items(*scores))


async def test_a_threshold_selects_all_that_reach_it():
    """The threshold itself is enough; candidates without a score are left out; the default is 5."""
    assert names(await (await strategy("good")).ainvoke(items(0.5, 0.4, None, 2.0))) == ["0", "3"]
    assert names(await (await strategy("default")).ainvoke(items(4.9, 5.0))) == ["1"]


async def test_the_builder_checks_the_stage_and_sets_the_pipeline():
    """A strategy of another stage is refused; the instance knows its pipeline."""
    assert (await strategy("best", pipeline="planning")).pipeline_type == PipelineTypeEnum.PLANNING
    with pytest.raises(ValueError, match="of the stage selection; wanted: search"):
        await strategy("best", stage=StageTypeEnum.SEARCH)
