"""Alias for plug-ins: the code is in `nat.plugins.llms.openai`."""

from nat.plugins.llms.openai import OpenAIModelConfig as OpenAIModelConfig
