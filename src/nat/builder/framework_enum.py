"""Alias for plug-ins: the code is in `nat.data_models.llm`."""

from nat.data_models.llm import LLMFrameworkEnum as LLMFrameworkEnum
