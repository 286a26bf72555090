"""`OpenAIModelConfig` under its public path."""

from nat.plugins.llms.openai import OpenAIModelConfig

__all__ = ["OpenAIModelConfig"]
