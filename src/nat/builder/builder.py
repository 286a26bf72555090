"""Alias for plug-ins: the code is in `nat.builder.workflow_builder`."""

from nat.builder.workflow_builder import WorkflowBuilder as Builder
from nat.builder.workflow_builder import WorkflowBuilder as EvalBuilder

__all__ = ["Builder", "EvalBuilder"]
