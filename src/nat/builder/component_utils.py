"""Alias for plug-ins: the code is in `nat.data_models.invocation_node`."""

from nat.data_models.invocation_node import ROOT_COMPONENT_NAME as ROOT_COMPONENT_NAME
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME as WORKFLOW_COMPONENT_NAME
