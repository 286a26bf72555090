"""Alias for plug-ins: the code is in `nat.builder.context`."""

from nat.builder.context import IntermediateStepManager as IntermediateStepManager
