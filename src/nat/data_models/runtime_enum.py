"""The purpose of a workflow run."""

from enum import StrEnum


class RuntimeTypeEnum(StrEnum):
    """The purpose of a workflow run."""

    RUN_OR_SERVE = "run_or_serve"
    EVALUATE = "evaluate"
    OTHER = "other"
