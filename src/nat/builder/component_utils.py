"""Alias for plug-ins: the code is in `nat.data_models.invocation_node`."""

from nat.data_models.invocation_node import ROOT_COMPONENT_NAME, WORKFLOW_COMPONENT_NAME

__all__ = ["ROOT_COMPONENT_NAME", "WORKFLOW_COMPONENT_NAME"]
