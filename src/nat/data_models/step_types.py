"""The kinds of intermediate steps."""

from enum import StrEnum


class IntermediateStepCategory(StrEnum):
    """What a step is about."""

    LLM = "LLM"
    TOOL = "TOOL"
    WORKFLOW = "WORKFLOW"
    TASK = "TASK"
    FUNCTION = "FUNCTION"
    CUSTOM = "CUSTOM"
    SPAN = "SPAN"
    TTC = "TTC"


class IntermediateStepState(StrEnum):
    """Where in its life a step is."""

    START = "START"
    CHUNK = "CHUNK"
    END = "END"


class IntermediateStepType(StrEnum):
    """Category and state in one; the value equals the name."""

    LLM_START = "LLM_START"
    LLM_END = "LLM_END"
    LLM_NEW_TOKEN = "LLM_NEW_TOKEN"  # noqa: S105 - a kind of step, no password
    TOOL_START = "TOOL_START"
    TOOL_END = "TOOL_END"
    WORKFLOW_START = "WORKFLOW_START"
    WORKFLOW_END = "WORKFLOW_END"
    TASK_START = "TASK_START"
    TASK_END = "TASK_END"
    TTC_START = "TTC_START"
    TTC_END = "TTC_END"
    FUNCTION_START = "FUNCTION_START"
    FUNCTION_END = "FUNCTION_END"
    CUSTOM_START = "CUSTOM_START"
    CUSTOM_END = "CUSTOM_END"
    SPAN_START = "SPAN_START"
    SPAN_CHUNK = "SPAN_CHUNK"
    SPAN_END = "SPAN_END"

    @property
    def category(self) -> IntermediateStepCategory:
        return CATEGORIES[self]

    @property
    def state(self) -> IntermediateStepState:
        return STATES[self]


CATEGORIES = {t: IntermediateStepCategory(t.value.partition("_")[0]) for t in IntermediateStepType}
STATES = {
    t: IntermediateStepState.CHUNK
    if t is IntermediateStepType.LLM_NEW_TOKEN
    else IntermediateStepState(t.value.rpartition("_")[2])
    for t in IntermediateStepType
}
