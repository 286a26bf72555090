"""The kinds of pipelines, and their stages."""

from enum import StrEnum


class PipelineTypeEnum(StrEnum):
    """What a pipeline chooses."""

    PLANNING = "planning"
    TOOL_USE = "tool_use"
    AGENT_EXECUTION = "agent_execution"
    CUSTOM = "custom"


class StageTypeEnum(StrEnum):
    """The stage of a pipeline that a strategy implements."""

    SEARCH = "search"
    EDITING = "editing"
    SCORING = "scoring"
    SELECTION = "selection"
    CUSTOM = "custom"
