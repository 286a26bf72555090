"""Alias for plug-ins: the code is in `nat.plugins.llms.nim`."""

from nat.plugins.llms.nim import NIMModelConfig as NIMModelConfig
