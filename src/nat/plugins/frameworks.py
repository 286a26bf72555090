"""The agent frameworks that are optional, registered; each is imported when one of its objects is asked for.

A framework's wrapper type is also the name of its extra and of its folder beside this file. There, `llm.open_model`
opens the framework's model on a recorded client, and `tools.as_tool` makes its tool of a function.
"""

from collections.abc import AsyncGenerator
from importlib import import_module
from types import ModuleType
from typing import Any

from nat.builder.builder import Builder
from nat.builder.function import Function
from nat.builder.tool import ToolFunction
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.extras import needs_extra
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_client, register_tool_wrapper

ALWAYS_THERE = (LLMFrameworkEnum.OPENAI, LLMFrameworkEnum.OPENAI_SYNC)
"""The SDK itself, which needs no extra."""
FRAMEWORKS = [framework for framework in LLMFrameworkEnum if framework not in ALWAYS_THERE]


def _register(framework: LLMFrameworkEnum) -> None:
    @register_llm_client(config_type=OpenAIModelConfig, wrapper_type=framework)
    async def model(config: OpenAIModelConfig, builder: Builder) -> AsyncGenerator[Any, None]:
        async with _imported(framework, "llm").open_model(config, llm_name=builder.llm_name) as opened:
            yield opened

    @register_tool_wrapper(wrapper_type=framework)
    def tool(name: str, fn: Function, _builder: Builder) -> Any:
        return _imported(framework, "tools").as_tool(ToolFunction(name, fn))


def _imported(framework: LLMFrameworkEnum, module: str) -> ModuleType:
    with needs_extra(framework):
        return import_module(f"nat.plugins.{framework}.{module}")


for each in FRAMEWORKS:
    _register(each)
