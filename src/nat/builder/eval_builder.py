"""The import path of plug-ins for a builder that holds evaluators."""

from nat.builder.workflow_builder import WorkflowBuilder as WorkflowEvalBuilder

__all__ = ["WorkflowEvalBuilder"]
