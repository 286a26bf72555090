"""The import path of plug-ins for the framework names."""

from nat.data_models.llm import LLMFrameworkEnum

__all__ = ["LLMFrameworkEnum"]
