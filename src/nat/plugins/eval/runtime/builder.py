"""Alias for plug-ins: the code is in `nat.builder.workflow_builder`."""

from nat.builder.workflow_builder import WorkflowBuilder as WorkflowEvalBuilder

__all__ = ["WorkflowEvalBuilder"]
